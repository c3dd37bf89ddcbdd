export interface PayloadClass {
  name: string;
  origin: string;
  payloads: string[];
}

export const CLASSES: PayloadClass[];
export const PAYLOADS: string[];
export const WELL_FORMED: string[];
export const ADDRESSES: string[];
export const ERROR_OUTPUT: string[];
export const FORM_FIELDS: number;
export const COSTLY: string[];
