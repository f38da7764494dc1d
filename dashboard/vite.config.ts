import { defineConfig } from "vite";

// One script and one style, which build/page.mjs puts into the page itself.
export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: { entryFileNames: "page.js", assetFileNames: "page[extname]" },
    },
  },
  // vite's own server shows the page with the figures of a Weir at 8080.
  server: { proxy: { "/events": "http://127.0.0.1:8080/dashboard", "/history": "http://127.0.0.1:8080/dashboard" } },
});
