//! What there was in the last minutes, and how it is drawn in a line.

use crate::picture::Picture;
use std::collections::VecDeque;

/// A screen is not wider.
const MAX: usize = 512;
/// What is plotted, by its place in [`Picture::plotted`].
pub const SERIES: usize = 10;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Default)]
pub struct History {
    rows: VecDeque<[Option<f64>; SERIES]>,
}

impl History {
    pub fn add(&mut self, picture: &Picture) {
        // The first look tells of no while.
        if picture.secs.is_none() {
            return;
        }
        if self.rows.len() == MAX {
            self.rows.pop_front();
        }
        self.rows.push_back(picture.plotted());
    }

    /// The newest at the right; nothing known is a gap. The highest of them is a full bar.
    pub fn line(&self, series: usize, width: usize) -> String {
        let shown = self.rows.iter().skip(self.rows.len().saturating_sub(width));
        let values: Vec<Option<f64>> =
            shown.map(|row| row.get(series).copied().flatten()).collect();
        let most = values.iter().flatten().fold(0.0, |a: f64, b| a.max(*b));
        let bar = |value: &Option<f64>| match value {
            None => ' ',
            Some(n) if most > 0.0 => {
                BARS[((n / most * BARS.len() as f64).ceil() as usize).clamp(1, BARS.len()) - 1]
            }
            Some(_) => BARS[0],
        };
        values.iter().map(bar).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_right_and_what_is_unknown_a_gap() {
        let mut history = History::default();
        for n in [Some(9.0), Some(0.0), None, Some(4.0), Some(8.0)] {
            let mut row = [None; SERIES];
            row[0] = n;
            history.rows.push_back(row);
        }
        assert_eq!(history.line(0, 4), "▁ ▄█");
        assert_eq!(history.line(0, 100), "█▁ ▄█");
        assert_eq!(history.line(1, 3), "   ");
    }
}
