// Numbers and small texts.

const grouped = new Intl.NumberFormat("en");

export const count = (value: number): string => grouped.format(value);

export const plural = (value: number, noun: string): string => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

export const score = (value: number): string => value.toFixed(2).replace("-", "−");

/** "tower 6.95 + memory 3.10", the largest first; nothing where a single part is the whole score. */
export function sumOf(parts: Record<string, number> = {}): string {
  const given = Object.entries(parts).sort((left, right) => right[1] - left[1]);
  if (given.length < 2) return "";
  return given
    .map(([part, value], place) =>
      place > 0 ? `${value < 0 ? "−" : "+"} ${part} ${score(Math.abs(value))}` : `${part} ${score(value)}`,
    )
    .join(" ");
}

export function milliseconds(value: number): string {
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

export function percent(part: number, whole: number): string {
  const share = (100 * part) / whole;
  return share > 0 && share < 1 ? "<1 %" : `${Math.round(share)} %`;
}

/** 12 values from `least` to `most`, about evenly spaced in ratio, rounded to two digits. */
export function beamSteps(least: number, most: number, ...included: number[]): number[] {
  if (most <= least) return [least];
  const steps = new Set([least, most, ...included.filter((value) => value > least && value < most)]);
  for (let index = 1; index < 12; index++) {
    const exact = least * (most / least) ** (index / 12);
    const unit = 10 ** Math.max(0, Math.floor(Math.log10(exact)) - 1);
    steps.add(Math.min(most, Math.max(least, Math.round(exact / unit) * unit)));
  }
  return [...steps].sort((left, right) => left - right);
}
