//! What the server as a whole did, second by second, kept in so much memory and no more: 5 minutes by the
//! second, an hour by ten seconds, a day by the minute.

use std::collections::VecDeque;
use weir_base::bytes::fmt_u64;
use weir_core::counts::Times;

/// What a row has, in its order. Counts are of the row's time; `active` is the most there was at a look; times
/// are in microseconds.
pub(super) const COLUMNS: [&str; 13] = [
    "accepted", "active", "requests", "1xx", "2xx", "3xx", "4xx", "5xx", "received", "sent", "p50",
    "p95", "p99",
];
const ACTIVE: usize = 1;
const TIMES_AT: usize = 10;
/// Seconds of a row, and how many rows are kept.
const STEPS: [(u64, usize); 3] = [(1, 300), (10, 360), (60, 1440)];

/// The counts of one second, and how long what was answered then took.
#[derive(Clone, Debug, Default)]
pub(super) struct Second {
    pub counts: [u64; TIMES_AT],
    pub times: Times,
}

impl Second {
    fn merge(&mut self, other: &Second) {
        for (n, (mine, theirs)) in self.counts.iter_mut().zip(&other.counts).enumerate() {
            *mine = if n == ACTIVE { (*mine).max(*theirs) } else { *mine + theirs };
        }
        self.times.merge(&other.times);
    }

    fn row(&self, at: u64) -> Row {
        let mut row = [0; 14];
        row[0] = at;
        row[1..=TIMES_AT].copy_from_slice(&self.counts);
        for (n, share) in [0.5, 0.95, 0.99].into_iter().enumerate() {
            row[1 + TIMES_AT + n] = self.times.percentile_us(share);
        }
        row
    }
}

/// When it begins, in seconds since 1970, and the columns.
type Row = [u64; 14];

#[derive(Default)]
struct Step {
    rows: VecDeque<Row>,
    /// What the row that has yet to end has so far, and when that began.
    open: Second,
    open_at: u64,
}

/// The rows of each step.
#[derive(Default)]
pub(super) struct History {
    steps: [Step; STEPS.len()],
}

impl History {
    /// Notes a second.
    pub(super) fn add(&mut self, at: u64, second: &Second) {
        for (step, (secs, max)) in self.steps.iter_mut().zip(STEPS) {
            let begins = at - at % secs;
            if step.open_at != begins {
                if step.open_at != 0 {
                    step.rows.push_back(step.open.row(step.open_at));
                }
                step.open = Second::default();
                step.open_at = begins;
            }
            step.open.merge(second);
            while step.rows.len() > max {
                step.rows.pop_front();
            }
        }
    }

    /// Names of the columns, and the rows of each step, the oldest first.
    pub(super) fn json(&self) -> Vec<u8> {
        let names = COLUMNS.map(|name| format!("\"{name}\"")).join(",");
        let mut out = format!("{{\"columns\":[\"t\",{names}],\"steps\":[").into_bytes();
        for (n, (step, (secs, _))) in self.steps.iter().zip(STEPS).enumerate() {
            if n > 0 {
                out.push(b',');
            }
            out.extend_from_slice(format!("{{\"secs\":{secs},\"rows\":[").as_bytes());
            let open = (step.open_at != 0).then(|| step.open.row(step.open_at));
            for (n, row) in step.rows.iter().chain(&open).enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                write_numbers(row, &mut out);
            }
            out.extend_from_slice(b"]}");
        }
        out.extend_from_slice(b"]}\n");
        out
    }

    /// The second that was noted last, as JSON.
    pub(super) fn last(&self) -> Vec<u8> {
        let step = &self.steps[0];
        let mut out = Vec::new();
        match step.open_at {
            0 => out.extend_from_slice(b"null"),
            at => write_numbers(&step.open.row(at), &mut out),
        }
        out
    }

    #[cfg(test)]
    fn rows(&self, step: usize) -> Vec<Row> {
        self.steps[step].rows.iter().copied().collect()
    }
}

/// A list of JSON.
pub(super) fn write_numbers(row: &[u64], out: &mut Vec<u8>) {
    out.push(b'[');
    for (n, value) in row.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        fmt_u64(out, *value);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_and_are_bounded() {
        let mut history = History::default();
        for at in 1000..3000 {
            let mut second = Second::default();
            second.counts[ACTIVE] = at % 10;
            second.counts[2] = 1;
            history.add(at, &second);
        }
        let [seconds, tens, minutes] = [0, 1, 2].map(|step| history.rows(step));
        assert_eq!((seconds.len(), tens.len(), minutes.len()), (300, 199, 33));
        assert_eq!((tens[0][0], tens[0][2], tens[0][3]), (1000, 9, 10));
        assert_eq!(minutes[1][3], 60);
        let text = String::from_utf8(history.json()).unwrap();
        assert!(
            text.starts_with("{\"columns\":[\"t\",\"accepted\",\"active\",\"requests\","),
            "{text}"
        );
        assert!(text.contains("\"secs\":10,\"rows\":[[1000,0,9,10,0,"), "{text}");
    }
}
