//! The listing as HTML. What themes and scripts hold on to is as ngx-fancyindex has it: the table's
//! `id`, the classes of its cells and the order of the columns.

use std::sync::Arc;

use weir_base::bytes::fmt_u64;
use weir_base::escape::{escape_html, escape_uri, EscapeKind};
use weir_runtime::tz;

use super::sorting::Sorting;
use crate::directory::Entry;

const STYLE: &str = "body{margin:0 auto;max-width:60rem;padding:1rem;font-family:system-ui,sans-serif;line-height:1.5}\
h1{font-size:1.3rem;overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}\
th,td{padding:.3rem .6rem;text-align:left}td.size,td.date{white-space:nowrap;color:GrayText}\
tbody tr:nth-child(odd){background:#8881}a{text-decoration:none}a:hover{text-decoration:underline}\
:root{color-scheme:light dark}";

const TABLE: &str = "<table id=\"list\"><thead><tr>\
<th colspan=\"2\"><a href=\"?C=N&amp;O=A\">File Name</a>&nbsp;<a href=\"?C=N&amp;O=D\">&nbsp;&darr;&nbsp;</a></th>\
<th><a href=\"?C=S&amp;O=A\">File Size</a>&nbsp;<a href=\"?C=S&amp;O=D\">&nbsp;&darr;&nbsp;</a></th>\
<th><a href=\"?C=M&amp;O=A\">Date</a>&nbsp;<a href=\"?C=M&amp;O=D\">&nbsp;&darr;&nbsp;</a></th>\
</tr></thead>\n<tbody>";

const TABLE_END: &str = "</tbody></table>";
pub const FOOT: &[u8] = b"</body>\n</html>\n";

/// What the configuration says of a page.
#[derive(Default)]
pub struct Look {
    pub exact_size: bool,
    pub localtime: bool,
    pub show_path: bool,
    pub hide_parent: bool,
    pub time_format: Vec<u8>,
    pub css_href: Vec<u8>,
}

pub struct Page {
    pub uri: Vec<u8>,
    pub look: Arc<Look>,
    pub sorting: Sorting,
}

impl Page {
    /// Everything up to the path in the headline.
    pub fn head(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024 + self.uri.len());
        out.extend_from_slice(
            b"<!DOCTYPE html>\n<html>\n<head><meta http-equiv=\"content-type\" content=\"text/html; charset=utf-8\">\
              <meta name=\"viewport\" content=\"width=device-width\">\n<style>",
        );
        out.extend_from_slice(STYLE.as_bytes());
        out.extend_from_slice(b"</style>\n");
        if !self.look.css_href.is_empty() {
            out.extend_from_slice(b"<link rel=\"stylesheet\" href=\"");
            out.extend_from_slice(&self.look.css_href);
            out.extend_from_slice(b"\">\n");
        }
        out.extend_from_slice(b"<title>Index of ");
        escape_html(&mut out, &self.uri);
        out.extend_from_slice(b"</title>\n</head>\n<body>\n<h1>Index of ");
        out
    }

    /// The path and the table.
    pub fn text(&self, mut entries: Vec<Entry>) -> Vec<u8> {
        self.sorting.sort(&mut entries);
        let mut out = Vec::with_capacity(1024 + 2 * self.uri.len() + entries.len() * 200);
        if self.look.show_path {
            escape_html(&mut out, &self.uri);
            out.extend_from_slice(b"</h1>\n");
        }
        out.extend_from_slice(TABLE.as_bytes());
        if self.uri.len() > 1 && !self.look.hide_parent {
            out.extend_from_slice(b"<tr><td colspan=\"2\" class=\"link\"><a href=\"../");
            out.extend_from_slice(self.sorting.args().as_bytes());
            out.extend_from_slice(
                b"\">Parent directory/</a></td><td class=\"size\">-</td><td class=\"date\">-</td></tr>\r\n",
            );
        }
        entries.iter().for_each(|e| self.row(&mut out, e));
        out.extend_from_slice(TABLE_END.as_bytes());
        out
    }

    fn row(&self, out: &mut Vec<u8>, e: &Entry) {
        out.extend_from_slice(b"<tr><td colspan=\"2\" class=\"link\"><a href=\"");
        escape_uri(out, &e.name, EscapeKind::UriComponent);
        if e.kind.is_dir() {
            out.push(b'/');
            out.extend_from_slice(self.sorting.args().as_bytes());
        }
        out.extend_from_slice(b"\" title=\"");
        escape_html(out, &e.name);
        out.extend_from_slice(b"\">");
        escape_html(out, &e.name);
        if e.kind.is_dir() {
            out.push(b'/');
        }
        out.extend_from_slice(b"</a></td><td class=\"size\">");
        self.size(out, e);
        out.extend_from_slice(b"</td><td class=\"date\">");
        let time = tz::strftime(e.mtime, !self.look.localtime, &self.look.time_format);
        escape_html(out, &time.unwrap_or_default());
        out.extend_from_slice(b"</td></tr>\r\n");
    }

    fn size(&self, out: &mut Vec<u8>, e: &Entry) {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if e.kind.is_dir() {
            return out.push(b'-');
        }
        if self.look.exact_size {
            return out.extend_from_slice(format!("{:>19}", e.size).as_bytes());
        }
        let power = (e.size.max(1).ilog2() / 10) as usize;
        match power.checked_sub(1).and_then(|n| UNITS.get(n)) {
            None => {
                fmt_u64(out, e.size);
                out.extend_from_slice(b" B");
            }
            Some(unit) => {
                let text = format!("{:.1} {unit}", e.size as f64 / (1u64 << (10 * power)) as f64);
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
}
