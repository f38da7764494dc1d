//! What the running server says of itself: workers without time, upstreams that take nothing.

use super::{Busy, Case, Judged};
use crate::finding::Finding;

/// A worker that is busy for so much of its time has none for what comes.
const SATURATED: u64 = 90;
/// As whoever asks it says so.
pub const NO_ANSWER: &str = "has not answered within";
/// So many upstreams are named.
const NAMED: usize = 20;

/// Whether each worker has time left.
pub fn workers(case: &Case<'_>) -> Judged {
    let told = match case.told {
        Ok(Some(told)) => told,
        Ok(None) => return Ok(Vec::new()),
        Err(why) if why.contains(NO_ANSWER) => {
            let why = "its socket takes the question, and no answer comes";
            let mend = "ps shows whether it is stopped (state T); weir profile, gdb or strace where it waits";
            return Ok(vec![Finding::error("the server does not answer", why, mend)]);
        }
        Err(why) => return Ok(vec![Finding::unknown("how busy workers are", why)]),
    };
    let full = told.workers.iter().filter(|w| w.works + w.waits >= SATURATED);
    let mut found: Vec<Finding> = full.map(saturated).collect();
    if found.is_empty() && !told.workers.is_empty() {
        let all: Vec<_> = told.workers.iter().map(|w| format!("{} %", w.works)).collect();
        found.push(Finding::ok(format!("workers are busy {} of the time", all.join(", ")), ""));
    }
    Ok(found)
}

fn saturated(worker: &Busy) -> Finding {
    let Busy { id, works, waits } = worker;
    let figure = format!("worker {id} has no time left: it works {works} % of it, and waits for a processor {waits} %");
    match waits > &(works / 2) {
        true => Finding::warn(
            figure,
            "other processes, or other workers, take the processors it would work on",
            "top shows which; no more worker_processes than processors, or worker_priority",
        ),
        false => Finding::warn(
            figure,
            "what comes waits until it has time: latency grows for all of its clients",
            "weir profile shows with what; a lower gzip_comp_level, caches, or more worker_processes where processors are idle",
        ),
    }
}

/// Whether the next request of each upstream has a server.
pub fn upstreams(case: &Case<'_>) -> Judged {
    // What could not be asked is told once.
    let Ok(Some(told)) = case.told else { return Ok(Vec::new()) };
    let wrong: Vec<_> = told.upstreams.iter().filter(|(_, state)| state != "up").collect();
    let mut found: Vec<Finding> =
        wrong.iter().take(NAMED).map(|(name, state)| of(name, state)).collect();
    if wrong.len() > NAMED {
        let more = format!("{} more upstreams are not up", wrong.len() - NAMED);
        found.push(Finding::warn(more, "", "weir top shows them"));
    }
    if wrong.is_empty() && !told.upstreams.is_empty() {
        let figure =
            format!("{} of {} upstreams take requests", told.upstreams.len(), told.upstreams.len());
        found.push(Finding::ok(figure, ""));
    }
    Ok(found)
}

fn of(name: &str, state: &str) -> Finding {
    let figure = format!("upstream \"{name}\": {state}");
    match state {
        "no servers" => Finding::error(
            figure,
            "each request is answered with 502: all servers are removed, or none is found by its name",
            "add one by the api (POST to .../servers), or look at the resolver's lines in the error log",
        ),
        "queue full" => Finding::error(
            figure,
            "servers have max_conns connections each, and as many requests wait as may: what comes is answered with 502",
            "raise max_conns or the number behind queue, or add servers",
        ),
        "at max_conns" => Finding::warn(
            figure,
            "servers have as many connections as they may: the next request waits (queue) or is refused",
            "raise max_conns, or add servers",
        ),
        _ => Finding::error(
            figure,
            "no server of it is up: checks have failed, or max_fails within fail_timeout",
            "weir top, view upstreams, says which and since when; the error log why",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Told;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity::{self, Error, Ok as Well, Unknown, Warn};

    fn judge(check: fn(&Case<'_>) -> Judged, told: Result<Option<&Told>, &str>) -> Vec<Severity> {
        let (conf, system) = (conf("http { }"), Fake::default());
        let case = Case { conf: &conf, system: &system, running: None, receivers: Ok(&[]), told };
        check(&case).unwrap().into_iter().map(|f| f.severity).collect()
    }

    #[test]
    fn what_is_wrong_is_told_by_its_name() {
        let all = |workers: &[u64], states: &[&str]| Told {
            workers: workers
                .iter()
                .map(|works| Busy { works: *works, ..Busy::default() })
                .collect(),
            upstreams: states.iter().map(|state| ("u".to_owned(), (*state).to_owned())).collect(),
        };
        let told = all(&[95, 10], &["up", "queue full", "at max_conns", "no servers", "unavail"]);
        assert_eq!(judge(workers, Ok(Some(&told))), [Warn]);
        assert_eq!(judge(upstreams, Ok(Some(&told))), [Error, Warn, Error, Error]);
        let well = all(&[50, 10], &["up"]);
        assert_eq!(judge(workers, Ok(Some(&well))), [Well]);
        assert_eq!(judge(upstreams, Ok(Some(&well))), [Well]);
        assert_eq!(judge(upstreams, Ok(Some(&all(&[], &["unavail"; 30])))).len(), NAMED + 1);
        assert_eq!(judge(workers, Err("no")), [Unknown]);
        assert_eq!(judge(workers, Err("it has not answered within 8 s")), [Error]);
        assert_eq!((judge(workers, Ok(None)), judge(upstreams, Ok(None))), (vec![], vec![]));
    }
}
