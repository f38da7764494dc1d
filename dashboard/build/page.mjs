// Makes one file of what vite has built, says by which digests its style and its script are known, and notes of
// which sources it is made.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";

const out = "../crates/status/page";
const digest = (text) => createHash("sha256").update(text).digest("base64");

function files(dir) {
  return readdirSync(dir).sort().flatMap((name) => {
    const path = join(dir, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
}

const script = readFileSync("dist/page.js", "utf8").replaceAll("</script", "<\\/script");
const style = readFileSync("dist/page.css", "utf8").trim();
const html = readFileSync("dist/index.html", "utf8")
  .replace(/\s*<script[^>]*><\/script>/, "")
  .replace(/\s*<link rel="stylesheet"[^>]*>/, "")
  .replace("</head>", () => `  <style>${style}</style>\n  </head>`)
  .replace("</body>", () => `  <script type="module">${script}</script>\n  </body>`);
mkdirSync(out, { recursive: true });
writeFileSync(join(out, "index.html"), html);
writeFileSync(join(out, "policy.txt"), `style-src 'sha256-${digest(style)}'; script-src 'sha256-${digest(script)}'\n`);
const sources = ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts", ...files("build"), ...files("src")];
const lines = sources.map((path) => `${createHash("sha256").update(readFileSync(path)).digest("hex")}  ${path}`);
writeFileSync(join(out, "sources.txt"), lines.join("\n") + "\n");
console.log(`${out}/index.html: ${html.length} bytes`);
