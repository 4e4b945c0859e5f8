// Which names fit beside the nodes of a level, and on which side.

export interface Label {
  x: number;
  y: number;
  text: string;
  /** Of a branch on the way to a recommended item: placed before the others. */
  isImportant: boolean;
}

export interface PlacedLabel extends Label {
  /** It ends at the node instead of starting there. */
  isLeft: boolean;
}

const MARGIN = 14;
const FEWEST_CHARACTERS = 6;

const ruler = document.createElement("canvas").getContext("2d")!;

/** Pixels that a text takes at the size of the labels in page.css. */
function widthOf(text: string): number {
  ruler.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

/** The labels that have room between `start` and `end` without touching each other; some of them shortened. */
export function fitLabels(labels: Label[], start: number, end: number): PlacedLabel[] {
  const nodes = labels.map(({ x }) => x).sort((one, other) => one - other);
  const taken: [number, number][] = [];
  const placed: PlacedLabel[] = [];
  const inOrder = [...labels].sort((one, other) => Number(other.isImportant) - Number(one.isImportant));
  for (const label of inOrder) {
    if (!label.text) continue;
    const { x } = label;
    const bounds = taken.flat();
    const next = Math.min(end, ...nodes.filter((other) => other > x + 1), ...bounds.filter((other) => other > x));
    const before = Math.max(start, ...nodes.filter((other) => other < x - 1), ...bounds.filter((other) => other < x));
    const wanted = widthOf(label.text) + MARGIN;
    const toRight = next - x;
    const toLeft = x - before;
    const isLeft = toRight < wanted && toLeft > toRight;
    const text = fitting(label.text, (isLeft ? toLeft : toRight) - MARGIN);
    if (text.length < Math.min(FEWEST_CHARACTERS, label.text.length)) continue;
    const length = widthOf(text) + MARGIN;
    taken.push(isLeft ? [x - length, x] : [x, x + length]);
    placed.push({ ...label, text, isLeft });
  }
  return placed;
}

/** The text, shortened until it is no wider than `room`. */
function fitting(text: string, room: number): string {
  let most = text.length;
  while (most > 0 && widthOf(shortened(text, most)) > room) most -= 1;
  return most > 0 ? shortened(text, most) : "";
}

export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, Math.max(1, most - 1)).replace(/[\s·,]+$/, "")}…`;
}
