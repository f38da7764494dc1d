// What the server tells: names once, values that change once a second, and what there was before the page was opened.

export type Leaf = number | string | boolean | null | number[];
/** A name leads to further names, or to the number of a value. */
export type Node = number | Group | Node[];
export interface Group {
  [name: string]: Node;
}

/** When, and then the counts of `columns`. */
export type Row = number[];
export interface Step {
  secs: number;
  rows: Row[];
}

/** A request that failed or was slow, or a line of the error log. */
export interface Happening {
  n: number;
  t: number;
  /** So many more were left out before it. */
  more?: number;
  level?: string;
  text?: string;
  status?: number;
  ms?: number;
  method?: string;
  path?: string;
  server?: string;
  upstream?: string;
}

export interface Limit {
  name: string;
  used?: number;
  max?: number;
}
export interface About {
  api?: string;
  writes?: boolean;
  slow_ms?: number;
  /** Others are shown beside it. */
  machines?: boolean;
  limits?: Limit[];
}

interface AllEvent {
  t: number;
  names: Group;
  v: Leaf[];
  row: Row | null;
  news?: Happening[];
}
interface TickEvent {
  t: number;
  v: Leaf[];
  row: Row | null;
  news?: Happening[];
}

const SECONDS_KEPT = 301;
const HAPPENINGS_KEPT = 500;

/** What came while the page paused: no more than the values there are. */
interface Held {
  all: AllEvent | null;
  changed: Map<number, Leaf>;
  rows: Row[];
  news: Happening[];
  t: number;
}

export class Live {
  names: Group = {};
  values: Leaf[] = [];
  /** Values before they changed last, if they did so with the newest look. */
  private before = new Map<number, Leaf>();
  now = 0;
  seconds = 1;
  columns: string[] = [];
  steps: Step[] = [];
  happenings: Happening[] = [];
  about: About = {};
  state: "connecting" | "live" | "lost" = "connecting";
  private told: (() => void)[] = [];
  private held: Held | null = null;
  private fetchedAt = 0;

  constructor(readonly base: string) {}

  start(): void {
    void this.fetchHistory();
    void this.fetchAbout();
    const events = new EventSource(this.base + "events");
    events.addEventListener("all", (e) => this.all(JSON.parse((e as MessageEvent<string>).data) as AllEvent));
    events.addEventListener("tick", (e) => this.tick(JSON.parse((e as MessageEvent<string>).data) as TickEvent));
    events.addEventListener("second", (e) => this.second(JSON.parse((e as MessageEvent<string>).data) as TickEvent));
    events.onerror = () => {
      this.state = "lost";
      this.tell();
    };
  }

  onChange(f: () => void): () => void {
    this.told.push(f);
    return () => {
      this.told = this.told.filter((g) => g !== f);
    };
  }

  private tell(): void {
    for (const f of this.told) f();
  }

  /** What comes is put aside until the page goes on. */
  pause(on: boolean): void {
    if (on) {
      this.held ??= { all: null, changed: new Map(), rows: [], news: [], t: this.now };
      return;
    }
    const held = this.held;
    this.held = null;
    if (!held) return;
    if (held.all) this.all({ ...held.all, row: null });
    for (const row of held.rows) this.addRow(row);
    this.tick({ t: held.t || this.now, v: [...held.changed].flat() as Leaf[], row: null, news: held.news });
    void this.fetchHistory();
  }

  async fetchHistory(): Promise<void> {
    if (this.held) return;
    try {
      const answer = await fetch(this.base + "history");
      const history = (await answer.json()) as { columns: string[]; steps: Step[] };
      if (this.held) return;
      this.columns = history.columns;
      this.steps = history.steps;
      this.fetchedAt = Date.now();
      this.tell();
    } catch {
      // The events tell that the server is away.
    }
  }

  /** Longer steps than a second come by the history alone. */
  keepStep(step: number): void {
    const secs = this.steps[step]?.secs ?? 1;
    if (step > 0 && this.fetchedAt && Date.now() - this.fetchedAt > secs * 1000) {
      this.fetchedAt = Date.now();
      void this.fetchHistory();
    }
  }

  async fetchAbout(): Promise<void> {
    try {
      this.about = (await (await fetch(this.base + "about")).json()) as About;
      this.tell();
    } catch {
      // As above.
    }
  }

  private all(e: AllEvent): void {
    if (this.held) {
      this.held.all = e;
      this.held.changed.clear();
      this.held.news = [];
      this.held.t = e.t;
      if (e.row) this.held.rows.push(e.row);
      return;
    }
    this.names = e.names;
    this.values = e.v;
    this.before.clear();
    this.happenings = e.news ?? [];
    this.came(e.t, e.row);
  }

  private tick(e: TickEvent): void {
    if (this.held) {
      const { changed, rows, news } = this.held;
      for (let i = 0; i + 1 < e.v.length; i += 2) changed.set(e.v[i] as number, e.v[i + 1]!);
      if (e.row) rows.push(e.row);
      if (rows.length > SECONDS_KEPT) rows.shift();
      news.push(...(e.news ?? []));
      news.splice(0, Math.max(0, news.length - HAPPENINGS_KEPT));
      this.held.t = e.t;
      return;
    }
    this.before.clear();
    for (let i = 0; i + 1 < e.v.length; i += 2) {
      const at = e.v[i] as number;
      this.before.set(at, this.values[at]!);
      this.values[at] = e.v[i + 1]!;
    }
    if (e.news) {
      this.happenings = [...this.happenings, ...e.news].slice(-HAPPENINGS_KEPT);
    }
    this.came(e.t, e.row);
  }

  /** A second between two looks: nothing but what the history notes. */
  private second(e: TickEvent): void {
    if (this.held) return this.tick(e);
    if (e.news) this.happenings = [...this.happenings, ...e.news].slice(-HAPPENINGS_KEPT);
    if (e.row) this.addRow(e.row);
    this.state = "live";
    this.tell();
  }

  private addRow(row: Row): void {
    const rows = this.steps[0]?.rows;
    if (!rows) return;
    const last = rows[rows.length - 1];
    if (last && last[0] === row[0]) rows[rows.length - 1] = row;
    else rows.push(row);
    if (rows.length > SECONDS_KEPT) rows.shift();
  }

  private came(now: number, row: Row | null): void {
    this.seconds = this.now ? Math.max(0.2, (now - this.now) / 1000) : 1;
    this.now = now;
    this.state = "live";
    if (row) this.addRow(row);
    this.tell();
  }

  group(...path: string[]): Group | undefined {
    let at: Node | undefined = this.names;
    for (const name of path) {
      if (typeof at !== "object" || Array.isArray(at)) return undefined;
      at = Object.hasOwn(at, name) ? at[name] : undefined;
    }
    return typeof at === "object" && !Array.isArray(at) ? at : undefined;
  }

  leaf(group: Group | undefined, name: string): Leaf | undefined {
    const at = group && Object.hasOwn(group, name) ? group[name] : undefined;
    return typeof at === "number" ? this.values[at] : undefined;
  }

  has(group: Group | undefined, name: string): boolean {
    return group !== undefined && Object.hasOwn(group, name);
  }

  num(group: Group | undefined, name: string): number {
    const value = this.leaf(group, name);
    return typeof value === "number" ? value : 0;
  }

  text(group: Group | undefined, name: string): string {
    const value = this.leaf(group, name);
    return value === undefined || value === null ? "" : String(value);
  }

  /** How many more a second there have been since the last look; nothing is known of what does not answer. */
  rate(group: Group | undefined, name: string): number {
    if (this.state === "lost") return NaN;
    const at = group && Object.hasOwn(group, name) ? group[name] : undefined;
    if (typeof at !== "number") return 0;
    const before = this.before.get(at);
    const now = this.values[at];
    if (typeof now !== "number" || typeof before !== "number") return 0;
    return Math.max(0, now - before) / this.seconds;
  }

  /** Since the last look: how many, and ms for the median, 95, 99 of a hundred and the longest. */
  times(group: Group | undefined, name: string): { count: number; p50: number; p95: number; p99: number } | undefined {
    const value = this.leaf(group, name);
    if (this.state === "lost" || !Array.isArray(value) || value.length < 4) return undefined;
    const [count, p50, p95, p99] = value as [number, number, number, number];
    return { count, p50: p50 / 1000, p95: p95 / 1000, p99: p99 / 1000 };
  }

  column(name: string): number {
    return this.columns.indexOf(name);
  }
}

export function entries(group: Group | undefined): [string, Group][] {
  if (!group) return [];
  return Object.entries(group).filter((e): e is [string, Group] => typeof e[1] === "object" && !Array.isArray(e[1]));
}

export function sub(group: Group | undefined, name: string): Group | undefined {
  const at = group && Object.hasOwn(group, name) ? group[name] : undefined;
  return typeof at === "object" && !Array.isArray(at) ? at : undefined;
}
