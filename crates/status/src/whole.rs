//! All figures in one document, for who adds several servers up or takes differences: times come with their buckets, so
//! that percentiles of a while, and of several servers, can be told. The API answers with it at
//! `/figures`.

use crate::api::begun_anew;
use crate::dashboard::system;
use crate::tree::gather;
use weir_core::counters::AllCounters;
use weir_core::figures::{Figure, Figures};
use weir_core::generation::Generation;
use weir_runtime::clock;

/// The tree of all that modules report; `now_us` (a clock that never goes back) and `system` (limits that the server comes
/// to) stand beside it.
///
/// `anew`: as the API shows it, where figures have begun anew by it.
pub fn document(gen: &Generation, all: &AllCounters, anew: bool) -> Vec<u8> {
    let mut tree = gather(gen, all, "");
    if anew {
        begun_anew(&mut tree);
    }
    let mut whole = Figures::default();
    whole.put("now_us", clock::now_us());
    for (name, figure) in tree.into_all() {
        whole.put(name, with_buckets(figure));
    }
    whole.put("system", system::limits());
    let mut out = Vec::new();
    whole.write_json(&mut out);
    out
}

fn with_buckets(figure: Figure) -> Figure {
    match figure {
        Figure::Times(times) => Figure::Group(times.as_whole_figures()),
        Figure::List(list) => Figure::List(list.into_iter().map(with_buckets).collect()),
        Figure::Group(group) => {
            let mut whole = Figures::default();
            group.into_all().for_each(|(name, figure)| whole.put(name, with_buckets(figure)));
            Figure::Group(whole)
        }
        other => other,
    }
}

/// What is counted of who comes and what for (`analytics_zone`): an object of JSON by the names of zones. It may take some
/// milliseconds for each.
pub fn visitors(gen: &Generation) -> Vec<u8> {
    crate::visitors::json(&crate::visitors::zones(gen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::counts::{Histogram, Times};

    #[test]
    fn times_come_with_their_buckets() {
        let histogram = Histogram::default();
        [3, 3, 100].into_iter().for_each(|us| histogram.add(us));
        let mut times = Times::default();
        times.add(&histogram);
        let mut tree = Figures::default();
        tree.put("list", Figure::List(vec![times.into()]));
        let mut out = Vec::new();
        with_buckets(tree.into()).write_json(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with(r#""sum_us":106,"max_us":100,"buckets":[4,2,104,1]}]}"#), "{text}");
    }
}
