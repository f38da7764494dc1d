//! A picture of folded stacks: boxes as wide as what they took, callers below what they call. An SVG without
//! scripts, which shows the figures of a box where the pointer is.

use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
const LINE: f64 = 16.0;
/// Boxes that would be narrower are left away.
const NARROWEST: f64 = 0.3;
/// Of a fixed-width letter of this size.
const LETTER: f64 = 6.6;
/// Deeper calls are not drawn.
const DEPTH_MAX: usize = 256;

#[derive(Default)]
struct Node {
    count: u64,
    calls: BTreeMap<String, Node>,
}

impl Node {
    fn depth(&self, least: u64) -> usize {
        let wide = self.calls.values().filter(|n| n.count >= least);
        1 + wide.map(|n| n.depth(least)).max().unwrap_or(0)
    }
}

/// Draws lines such as `a;b;c 12`. `None` if there is no sample in them.
pub fn svg(folded: &str, title: &str) -> Option<String> {
    let mut root = Node::default();
    for line in folded.lines() {
        let Some((stack, count)) = line.rsplit_once(' ') else { continue };
        let Ok(count) = count.parse::<u64>() else { continue };
        root.count += count;
        let mut node = &mut root;
        for call in stack.split(';').take(DEPTH_MAX) {
            node = node.calls.entry(call.to_owned()).or_default();
            node.count += count;
        }
    }
    if root.count == 0 {
        return None;
    }
    let least = (root.count as f64 * NARROWEST / WIDTH).ceil() as u64;
    let height = (root.depth(least) + 3) as f64 * LINE;
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <style>rect:hover{{stroke:#000}}text{{pointer-events:none}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fffdf7\"/>\n\
         <text x=\"{}\" y=\"{LINE}\" text-anchor=\"middle\" font-size=\"13\">{}</text>\n",
        WIDTH / 2.0,
        escaped(title)
    );
    let total = root.count;
    draw(&mut out, ("all", &root), 0.0, height - LINE - 4.0, total);
    out.push_str("</svg>\n");
    Some(out)
}

fn draw(out: &mut String, (name, node): (&str, &Node), x: f64, y: f64, total: u64) {
    let width = node.count as f64 / total as f64 * WIDTH;
    if width < NARROWEST {
        return;
    }
    let share = node.count as f64 * 100.0 / total as f64;
    let shown = escaped(name);
    let _ = writeln!(
        out,
        "<g><title>{shown}: {} samples, {share:.2} %</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" \
         height=\"{}\" fill=\"{}\" rx=\"1\"/>",
        node.count,
        LINE - 1.0,
        colour(name)
    );
    let room = ((width - 4.0) / LETTER) as usize;
    if room >= 3 {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{}\">{}</text>",
            x + 2.0,
            y + 11.0,
            escaped(&cut(name, room))
        );
    }
    out.push_str("</g>\n");
    let mut at = x;
    for (name, call) in &node.calls {
        draw(out, (name, call), at, y - LINE, total);
        at += call.count as f64 / total as f64 * WIDTH;
    }
}

/// The same name has the same colour everywhere.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(5381u32, |h, b| h.wrapping_mul(33) ^ u32::from(b));
    format!("rgb({},{},{})", 205 + hash % 50, 80 + hash / 50 % 130, hash / 6500 % 60)
}

fn cut(name: &str, room: usize) -> String {
    match name.chars().count() > room {
        true => name.chars().take(room - 2).chain("..".chars()).collect(),
        false => name.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_as_wide_as_what_they_took() {
        let svg =
            svg("worker 0;a;b<u8> 3\nworker 0;a 1\nworker 1;c 4\nnothing\n", "CPU & more").unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("CPU &amp; more"));
        assert!(
            svg.contains("<title>b&lt;u8&gt;: 3 samples, 37.50 %</title><rect x=\"0.0\""),
            "{svg}"
        );
        assert!(
            svg.contains("<title>worker 1: 4 samples, 50.00 %</title><rect x=\"600.0\""),
            "{svg}"
        );
        assert_eq!(svg.matches("<rect ").count(), 7);
        assert!(super::svg("", "x").is_none());
    }

    #[test]
    fn what_is_too_deep_or_narrow_is_left_away() {
        let deep = format!("{} 1\n", vec!["f"; 10_000].join(";"));
        assert!(svg(&deep, "").unwrap().matches("<g>").count() <= DEPTH_MAX + 1);
        assert!(!svg("a 1\nb 100000\n", "").unwrap().contains("<title>a:"));
    }
}
