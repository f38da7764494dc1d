//! The tree of all that modules report.

use weir_core::counters::AllCounters;
use weir_core::counts;
use weir_core::figures::{Figures, Served};
use weir_core::generation::Generation;

/// What modules report at a place (`/http/server_zones`) and below it, where it stands in the tree of all; an empty
/// place is that of the whole. Reports that have nothing to do with it are not asked.
pub fn gather(gen: &Generation, all: &AllCounters, place: &str) -> Figures {
    let mut figures = Figures::default();
    let blocks = [("http", weir_http::module::reports(gen)), ("stream", weir_stream::reports(gen))];
    for (name, (reports, main)) in blocks {
        let Some(main) = main else { continue };
        for report in reports.iter().filter(|report| meet(name, report.path, place)) {
            figures.add(name, report, &Served { gen, all }, main);
        }
    }
    counts::shown();
    figures
}

/// Whether one of the two, the place of a report of that block and the one that is asked for, is above the other.
fn meet(block: &str, path: &str, place: &str) -> bool {
    let whole = match path.strip_prefix('/') {
        Some(path) => path.to_string(),
        None => format!("{block}/{path}"),
    };
    let mut asked = place.split('/').filter(|part| !part.is_empty());
    // What stands at the root itself may be anywhere.
    whole
        .split('/')
        .filter(|part| !part.is_empty())
        .all(|part| asked.next().is_none_or(|asked| asked == part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_on_the_way_or_below_is_asked() {
        for (block, path, place, expected) in [
            ("http", "server_zones", "", true),
            ("http", "server_zones", "/http", true),
            ("http", "server_zones", "/http/server_zones/a.test", true),
            ("stream", "server_zones", "/http/server_zones", false),
            ("http", "server_zones", "/http/server", false),
            ("http", "/connections", "/connections", true),
            ("http", "/connections", "/http", false),
            ("http", "/", "/workers", true),
            ("http", "/", "", true),
            ("http", "a/b", "/http/a", true),
            ("http", "a/b", "/http/a/c", false),
        ] {
            assert_eq!(meet(block, path, place), expected, "{path} for {place}");
        }
    }
}
