//! All figures in one document, for who adds several servers up or takes differences: times come with their buckets, so
//! that percentiles of a while, and of several servers, can be told. The control socket answers with it (`weir top`),
//! and the API at `/figures`.

use crate::api::begun_anew;
use crate::dashboard::{recent, system};
use crate::tree::gather;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;
use weir_core::counters::AllCounters;
use weir_core::figures::{Figure, Figures};
use weir_core::generation::Generation;
use weir_runtime::{clock, process};

/// Which process this is: whoever asks two addresses learns whether the same answers.
fn instance() -> &'static str {
    static INSTANCE: OnceLock<String> = OnceLock::new();
    INSTANCE.get_or_init(|| {
        // Keys of the system's; with the process's number, which a fork changes.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(process::pid());
        hasher.write_u64(clock::now_us());
        format!("{:016x}", hasher.finish())
    })
}

/// The tree of all that modules report; `instance`, `now_us` (a clock that never goes back), `system` (limits that the server comes
/// to) and `problems` (what failed or was slow, as the dashboard notes it) stand beside it.
///
/// `anew`: as the API shows it, where figures have begun anew by it.
pub fn document(gen: &Generation, all: &AllCounters, anew: bool) -> Vec<u8> {
    recent::asked();
    let mut tree = gather(gen, all, "");
    if anew {
        begun_anew(&mut tree);
    }
    let mut whole = Figures::default();
    whole.put("now_us", clock::now_us());
    whole.put("instance", instance());
    for (name, figure) in tree.into_all() {
        whole.put(name, with_buckets(figure));
    }
    whole.put("system", system::limits());
    let mut out = Vec::new();
    whole.write_json(&mut out);
    // The object goes on behind its last member.
    out.pop();
    out.extend_from_slice(b",\"problems\":");
    out.extend_from_slice(&recent::since(0).0);
    out.push(b'}');
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
