//! A small generator (xorshift64*), and what mutation needs of it.

pub struct Random(u64);

/// Inputs do not grow beyond this.
const MAX_BYTES: usize = 4096;

impl Random {
    /// Neighbouring seeds give unrelated runs.
    pub fn new(seed: u64) -> Self {
        let mixed = (seed ^ (seed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = Random((mixed ^ (mixed >> 29)) | 1);
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 up to, and without, `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 33) % limit.max(1) as u64) as usize
    }

    pub fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Growing lengths that end with `len`: how input arrives in pieces.
    pub fn cuts(&mut self, len: usize) -> Vec<usize> {
        let step = [1, 3, 17, 200][self.below(4)];
        let mut cuts = Vec::new();
        let mut at = 0;
        while at < len {
            cuts.push(at);
            at += 1 + self.below(step);
        }
        cuts.push(len);
        cuts
    }

    /// One of the seeds, changed a little or, now and then, much.
    pub fn mutate(&mut self, seeds: &[&[u8]], pieces: &[&[u8]]) -> Vec<u8> {
        let mut text = self.pick(seeds).to_vec();
        let changes = if self.below(8) == 0 { self.below(40) } else { self.below(6) };
        for _ in 0..changes {
            self.change(&mut text, seeds, pieces);
        }
        text.truncate(MAX_BYTES);
        text
    }

    fn change(&mut self, text: &mut Vec<u8>, seeds: &[&[u8]], pieces: &[&[u8]]) {
        let from = self.below(text.len() + 1);
        let to = (from + self.below(8)).min(text.len());
        match self.below(8) {
            0 => drop(text.drain(from..to)),
            1 => text.truncate(from),
            2 | 3 => drop(text.splice(from..from, self.pick(pieces).iter().copied())),
            4 => {
                let copy = text[from..to].to_vec();
                let at = self.below(text.len() + 1);
                text.splice(at..at, copy);
            }
            5 => {
                let other = self.pick(seeds);
                text.truncate(from);
                text.extend_from_slice(&other[self.below(other.len())..]);
            }
            6 => text.insert(from, self.next() as u8),
            _ => {
                if let Some(byte) = text.get_mut(from) {
                    *byte ^= 1 << self.below(8);
                }
            }
        }
    }
}
