// The page: its state, and what follows when it changes.

import {
  type Branch,
  type Item,
  type ItemId,
  type Model,
  type Question,
  type Recommendation,
  type RecommendedItem,
  Server,
  nameOf,
} from "./api";
import { readAddress, writeAddress } from "./address";
import { debounced, find } from "./dom";
import { makeExamples } from "./examples";
import { Filter } from "./filter";
import { type Liked, type Ranks, ranksOf, showHistory, showPinned, showRecommendations } from "./lists";
import { NodePanel } from "./node";
import { Problem } from "./problem";
import { Search } from "./search";
import { listNote, widthNote } from "./notes";
import { Tree } from "./tree";
import { Walk } from "./walk";
import { beamSteps, count, milliseconds, plural } from "./words";

const ANSWERS = 10;
const WAIT_MILLISECONDS = 90;
const POPULAR = 60;
/** Branches carry names on levels with at most so many of them. */
const NAMED_PER_LEVEL = 32;
/** The search time shown is that of the fastest of so many searches: what else the machine does only adds to it. */
const TIMINGS = 7;

/** As in page.css: the tree is below the lists, out of sight. */
const isOneColumn = matchMedia("(width < 680px)");

/** What changed since the last answer; it decides what the new one says about itself. */
type Change = "history" | "considered" | "beam" | "options";

class Page {
  private readonly server = new Server();
  private readonly problem = new Problem();
  private readonly beamSlider = find<HTMLInputElement>("beam");
  private readonly seenBox = find<HTMLInputElement>("exclude-seen");
  private readonly filter = new Filter(() => this.changed("options"));
  private model!: Model;
  private tree!: Tree;
  private nodePanel!: NodePanel;
  private history: Liked[] = [];
  private considered: Item | null = null;
  private examples: Item[][] = [];
  private exampleShown = -1;
  private steps: number[] = [ANSWERS];
  private branches: Branch[] = [];
  private ranks: Ranks = new Map();
  private pinned: RecommendedItem | null = null;
  private asking: AbortController | null = null;
  private widest: { question: string; ids: Set<ItemId> } | null = null;
  private readonly askSoon = debounced((change: Change) => void this.ask(change), WAIT_MILLISECONDS);

  async start(): Promise<void> {
    try {
      await this.meetModel();
      this.problem.clear();
    } catch (error) {
      find("main").classList.add("without-model");
      this.problem.show(error, () => void this.start());
      return;
    }
    find("main").classList.remove("without-model");
    this.nodePanel = new NodePanel(this.server, {
      add: (item) => this.add(item),
      moved: (place) => this.tree.ring(place),
      left: () => this.tree.focus(),
      fateOf: (place) => this.tree.fateOf(place),
      rankOf: (id) => this.ranks.get(id),
      isLiked: (id) => this.isLiked(id),
    });
    this.tree = new Tree({
      open: async (place, y) => {
        await this.nodePanel.open(place);
        if (isOneColumn.matches) scrollBy({ top: find("tree").getBoundingClientRect().top + y - 0.08 * innerHeight });
        else find("node").scrollIntoView({ block: "nearest" });
      },
      describe: (text) => {
        find("caption").textContent = text;
      },
    });
    new Search(
      this.server,
      {
        add: (item) => this.add(item),
        removeNewest: () => this.remove(this.history.length - 1),
        consider: (item) => this.consider(item),
        fail: (error) => this.problem.show(error, () => void this.ask("options")),
      },
      (item) => this.isLiked(item.item_id),
    );
    this.listen();
    this.changed("history");
  }

  /** Read what is being served, and bring the page's state in line with it. */
  private async meetModel(): Promise<void> {
    this.model = await this.server.describeModel();
    const saved = readAddress();
    const { tree, limits, defaults, items, model_version } = this.model;
    find("item-count").textContent = plural(items, "item");
    find("model-version").textContent = `model ${model_version}`;
    this.filter.offer(this.model, saved.filter);
    this.seenBox.checked = saved.excludeSeen ?? defaults.exclude_seen;
    const most = Math.max(ANSWERS, Math.min(limits.beam, tree.leaves));
    const wanted = Math.min(most, Math.max(ANSWERS, saved.beam ?? defaults.beam));
    this.steps = beamSteps(Math.min(ANSWERS, most), most, defaults.beam, wanted);
    this.beamSlider.max = String(this.steps.length - 1);
    this.beamSlider.value = String(this.steps.indexOf(wanted));
    this.branches = await this.server.branches(NAMED_PER_LEVEL);
    this.examples = makeExamples((await this.server.findItems("", POPULAR)).items);
    if (saved.history) this.history = await this.lookUp(saved.history);
    else this.showExample();
  }

  private async lookUp(ids: ItemId[]): Promise<Liked[]> {
    const found = await this.server.lookUp(ids);
    return ids.map((id, index) => found[index] ?? { item_id: id, columns: {}, isUnknown: true });
  }

  private listen(): void {
    this.beamSlider.addEventListener("input", () => this.changed("beam"));
    this.seenBox.addEventListener("change", () => this.changed("options"));
    find("clear").addEventListener("click", () => {
      this.history = [];
      this.exampleShown = -1;
      this.changed("history");
      find("search").focus();
    });
    find("example").addEventListener("click", () => {
      this.showExample();
      this.changed("history");
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      this.nodePanel.close();
      this.pin(null);
    });
  }

  private showExample(): void {
    if (!this.examples.length) return;
    this.exampleShown = (this.exampleShown + 1) % this.examples.length;
    this.history = [...this.examples[this.exampleShown]!];
  }

  private isLiked(id: ItemId): boolean {
    return this.history.some((item) => item.item_id === id);
  }

  private add(item: Item): void {
    this.history = [...this.history.filter((other) => other.item_id !== item.item_id), item].slice(
      -this.model.limits.history,
    );
    this.exampleShown = -1;
    this.changed("history");
  }

  private remove(index: number): void {
    if (!this.history[index]) return;
    const hadFocus = find("history").contains(document.activeElement);
    this.history = this.history.filter((_, other) => other !== index);
    this.exampleShown = -1;
    this.changed("history");
    if (hadFocus) (find("history").querySelector<HTMLElement>("button") ?? find("search")).focus();
  }

  private consider(item: Item | null): void {
    if (item?.item_id === this.considered?.item_id) return;
    this.considered = item;
    this.askLater("considered");
  }

  private changed(change: Change): void {
    if (change === "history") this.considered = null;
    const beam = this.steps[Number(this.beamSlider.value)]!;
    const isOwn = beam === this.model.defaults.beam;
    find("beam-value").textContent = isOwn ? `${count(beam)}, as the model is set` : count(beam);
    const place = Number(this.beamSlider.value) / Math.max(1, this.steps.length - 1);
    this.beamSlider.style.setProperty("--place", String(place));
    this.beamSlider.setAttribute("aria-valuetext", `${count(beam)} branches kept on each level`);
    showHistory(this.history, this.model.history_length, (index) => this.remove(index));
    find("clear").hidden = this.history.length === 0;
    find("example").hidden = this.examples.length < 2 && this.history.length > 0;
    const isExample = this.exampleShown >= 0;
    const note = isExample
      ? "An example to start with. Add your own above."
      : this.history.length === 0
        ? "Nothing yet: search above, or take an example."
        : "";
    find("history-note").textContent = note;
    find("history-note").hidden = note === "";
    writeAddress({
      history: this.history.map((item) => item.item_id),
      beam,
      excludeSeen: this.seenBox.checked,
      filter: this.filter.choice,
    });
    this.askLater(change);
  }

  /** Ask as soon as nothing more changes; what is being asked is out of date from now on. */
  private askLater(change: Change): void {
    this.asking?.abort();
    find("main").setAttribute("aria-busy", "true");
    this.askSoon(change);
  }

  private question(): Question {
    const known = this.history.filter((item) => !item.isUnknown).map((item) => item.item_id);
    return {
      history: this.considered ? [...known, this.considered.item_id] : known,
      k: Math.min(ANSWERS, this.model.limits.k),
      beam: this.steps[Number(this.beamSlider.value)]!,
      excludeSeen: this.seenBox.checked,
      condition: this.filter.condition,
      explain: true,
    };
  }

  /** Ask for recommendations with their explanation, then for the time of a plain search, then for the widest beam. */
  private async ask(change: Change): Promise<void> {
    this.askSoon.cancel();
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    const question = this.question();
    const considered = this.considered;
    find("main").setAttribute("aria-busy", "true");
    try {
      const { results, model_version } = await this.server.recommend(question, signal);
      if (signal.aborted) return;
      this.problem.clear();
      if (model_version !== this.model.model_version) {
        await this.meetModel();
        return this.changed("history");
      }
      this.show(results[0], question, change, considered);
      await this.compare(question, results[0], signal);
    } catch (error) {
      if (!signal.aborted) this.problem.show(error, () => void this.ask(change));
    } finally {
      if (!signal.aborted) find("main").setAttribute("aria-busy", "false");
    }
  }

  private show(answer: Recommendation, question: Question, change: Change, considered: Item | null): void {
    const { condition } = question;
    const before = change === "beam" ? this.ranks : null;
    this.ranks = ranksOf(answer);
    showRecommendations(answer, before, {
      point: (item) => this.tree.point(item ?? this.pinned),
      pin: (item) => {
        this.pin(this.pinned?.item_id === item.item_id ? null : item);
        if (this.pinned && isOneColumn.matches) find("tree-frame").scrollIntoView({ block: "center" });
      },
      add: (item) => this.add(item),
    });
    this.pin(answer.items.find((item) => item.item_id === this.pinned?.item_id) ?? null);
    this.tree.show(new Walk(this.model.tree, answer, this.branches, condition !== null), change === "history");
    this.nodePanel.refresh();
    const scored = answer.beam?.levels.reduce((sum, level) => sum + level.scored, 0);
    find("looked-at").textContent = scored === undefined ? "–" : `${count(scored)} of ${count(this.model.tree.nodes)}`;
    find("beam-note").textContent = widthNote(answer, question.beam);
    find("recommendations-note").textContent = considered
      ? `If you add ${nameOf(considered)}:`
      : listNote(answer, { wanted: question.k, filter: this.filter.words, excludesSeen: question.excludeSeen });
    find("announcement").textContent = answer.items.length
      ? `${plural(answer.items.length, "recommendation")}, first ${nameOf(answer.items[0]!)}`
      : "No recommendations";
  }

  private async compare(question: Question, answer: Recommendation, signal: AbortSignal): Promise<void> {
    if (answer.source === "popularity" || !answer.items.length) {
      find("latency").textContent = find("agreement").textContent = "–";
      return;
    }
    const plain = { ...question, explain: false };
    const times: number[] = [];
    while (times.length < TIMINGS) {
      const timed = await this.server.recommend(plain, signal);
      if (signal.aborted) return;
      times.push(timed.milliseconds.search);
    }
    find("latency").textContent = milliseconds(Math.min(...times));
    const most = this.steps.at(-1)!;
    const isFull = most >= this.model.tree.leaves;
    find("agreement-name").textContent = isFull ? "Same as a full search" : `Same as a beam of ${count(most)}`;
    const asked = JSON.stringify({ ...plain, beam: most });
    if (this.widest?.question !== asked) {
      find("agreement").textContent = "…";
      const { results } = await this.server.recommend({ ...plain, beam: most }, signal);
      if (signal.aborted) return;
      this.widest = { question: asked, ids: new Set(results[0].items.map((item) => item.item_id)) };
    }
    const same = answer.items.filter((item) => this.widest!.ids.has(item.item_id)).length;
    find("agreement").textContent = `${same} of ${this.widest.ids.size}`;
  }

  private pin(item: RecommendedItem | null): void {
    this.pinned = item;
    showPinned(item?.item_id ?? null);
    this.tree.point(item);
  }
}

void new Page().start();
