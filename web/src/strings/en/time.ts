// Durations and times of the past.

export const underOneSecond = "under a second";
export const seconds = (count: number) => `${count} s`;
export const minutes = (count: number, rest: number) => `${count} min ${rest} s`;
export const hours = (count: number, rest: number) => `${count} h ${rest} min`;
export const days = (count: number, rest: number) => `${count} days ${rest} h`;

export const justNow = "just now";
export const minutesAgo = (count: number) => `${count} min ago`;
export const hoursAgo = (count: number) => `${count} h ago`;
export const daysAgo = (count: number) => `${count} days ago`;
