// The distances that a person has chosen. The style sheet follows the attribute `data-density`.

import { Choice } from "./choice";

export const DENSITIES = ["comfortable", "compact"] as const;
export type Density = (typeof DENSITIES)[number];

export const densityChoice = new Choice<Density>("density", DENSITIES);

export function applyDensity(): void {
  const { dataset } = document.documentElement;
  if (densityChoice.value() === "compact") dataset["density"] = "compact";
  else delete dataset["density"];
}
