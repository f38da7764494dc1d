//! gzip as gzip(1) reads it: members one behind the other, and zeros behind the last, as tapes and blocks of disks
//! leave them.

use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, Read};

pub struct Gzip<R> {
    /// `None` behind the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    pub fn new(from: R) -> Gzip<R> {
        Gzip { member: Some(GzDecoder::new(from)) }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let n = member.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            let Some(ended) = self.member.take() else { break };
            let mut from = ended.into_inner();
            if skip_zeros(&mut from)? {
                self.member = Some(GzDecoder::new(from));
            }
        }
        Ok(0)
    }
}

/// Whether something else is behind them.
fn skip_zeros(from: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let some = match from.fill_buf() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            some => some?,
        };
        if some.is_empty() {
            return Ok(false);
        }
        let zeros = some.iter().take_while(|b| **b == 0).count();
        let is_all = zeros == some.len();
        from.consume(zeros);
        if !is_all {
            return Ok(true);
        }
    }
}
