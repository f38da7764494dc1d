//! Pages that are trimmed, and the versions of browsers.

use super::Target;
use weir_tengine::readers::{trimmed, version_behind};

pub const TARGET: Target = Target {
    name: "tengine",
    seeds: &[
        b"<!DOCTYPE html>\n<p  class = \"a  b\" >x   y</p><!-- c --><!--[if IE]> d <![endif]-->",
        b"<script>// a\nx = /[/]  a/g; y = `a ${ `b` } c`;\n</script  >",
        b"<style>/* a */ b > c : d { e : f  g; } /*\\*/ h {} /**/</style>",
        b"<pre> a <pre> b </pre> </pre><textarea> c </textarea>",
        b"Mozilla/5.0 Chrome/13.0.782.112 Safari/535.1",
    ],
    pieces: &[
        b"<!--",
        b"-->",
        b"<!--#",
        b"<![endif]-->",
        b"<script>",
        b"</script",
        b"<style>",
        b"</style>",
        b"<pre>",
        b"</pre>",
        b"<textarea>",
        b"type=",
        b"text/javascript",
        b"/*",
        b"*/",
        b"\\*/",
        b"//",
        b"\n",
        b"  ",
        b"\r",
        b"`",
        b"${",
        b"}",
        b"'",
        b"\"",
        b"\\",
        b"/",
        b"[",
        b">",
        b"<",
        b"=",
        b"@media",
        b"{",
        b":",
    ],
    check: |input, _| {
        for (js, css) in [(false, false), (true, true)] {
            let whole = trimmed(input, js, css, input.len());
            // A few bytes may come to keep words apart, where a comment was longer than they are.
            assert!(whole.len() <= input.len());
            for piece_bytes in [1, 3] {
                assert_eq!(trimmed(input, js, css, piece_bytes), whole);
            }
            let words = |text: &[u8]| text.iter().filter(|b| b.is_ascii_control()).count();
            assert!(words(&whole) <= words(input));
        }
        version_behind(input);
    },
};
