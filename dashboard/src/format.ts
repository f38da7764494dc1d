// Figures as they are read: three digits that matter, and their unit.

const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });
const digits = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** What is not known, as when the server does not answer. */
const NOTHING = "–";

export function whole(n: number): string {
  if (Number.isNaN(n)) return NOTHING;
  return digits.format(n);
}

export function count(n: number): string {
  if (Number.isNaN(n)) return NOTHING;
  return n < 10_000 ? whole(n) : short.format(n);
}

export function perSecond(n: number): string {
  if (n === 0) return "0";
  if (Number.isNaN(n)) return NOTHING;
  return n < 10 ? n.toFixed(1) : n < 10_000 ? whole(n) : short.format(n);
}

export function bytes(n: number): string {
  if (Number.isNaN(n)) return NOTHING;
  let at = 0;
  const units = ["B", "KB", "MB", "GB", "TB"];
  while (n >= 1000 && at < units.length - 1) {
    n /= 1024;
    at += 1;
  }
  return `${at === 0 || n >= 100 ? n.toFixed(0) : n.toPrecision(3)} ${units[at]}`;
}

export function ms(n: number): string {
  if (Number.isNaN(n) || n <= 0) return NOTHING;
  if (n < 1) return `${(n * 1000).toFixed(0)} µs`;
  if (n < 1000) return `${n < 100 ? n.toPrecision(3) : n.toFixed(0)} ms`;
  return `${(n / 1000).toPrecision(3)} s`;
}

export function percent(share: number): string {
  if (!Number.isFinite(share)) return NOTHING;
  if (share === 0) return "0 %";
  return `${(share * 100).toFixed(share < 0.1 ? 2 : 1)} %`;
}

const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export function clock(ms: number): string {
  return time.format(ms);
}

/** How long ago, in the unit that matters. */
export function ago(ms: number): string {
  const secs = Math.max(0, Math.round(ms / 1000));
  if (secs < 60) return `${secs} s ago`;
  if (secs < 3600) return `${Math.floor(secs / 60)} min ago`;
  if (secs < 86_400) return `${Math.floor(secs / 3600)} h ago`;
  return `${Math.floor(secs / 86_400)} days ago`;
}
