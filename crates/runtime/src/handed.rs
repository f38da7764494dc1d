//! What the master hands its serving process: a message is a kind, numbers and paths, and the text
//! of a configuration; sockets and files travel beside it as descriptors, in the same order.

use crate::listen::Listener;
use crate::sockets::OwnedFd;
use std::fs::File;
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Another configuration: listening sockets, log files, and everything it was read from.
    Configuration,
    /// Log files that were opened again.
    Logs,
    /// Another process is about to take this one's place; the way to it.
    Successor,
    /// It has gone again.
    NoSuccessor,
    /// To one that was started rather than forked: files in memory that its master has too, and whether it goes on where
    /// the one before it was. More follows.
    Kept,
    /// To the same: the way from the process whose place it takes.
    Predecessor,
    /// To finish, behind what was said before: a signal might overtake that there.
    Quit,
}

impl Kind {
    /// The last word of each class is the one that counts.
    pub fn class(self) -> u8 {
        match self {
            Kind::Configuration => 0,
            Kind::Logs => 1,
            Kind::Successor | Kind::NoSuccessor => 2,
            Kind::Kept => 3,
            Kind::Predecessor => 4,
            Kind::Quit => 5,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// So many descriptors are listening sockets.
    pub listeners: usize,
    /// The names of the files behind them.
    pub paths: Vec<PathBuf>,
    pub bundle: Vec<u8>,
}

const KINDS: [Kind; 7] = [
    Kind::Configuration,
    Kind::Logs,
    Kind::Successor,
    Kind::NoSuccessor,
    Kind::Kept,
    Kind::Predecessor,
    Kind::Quit,
];

impl Message {
    /// One that has no text and no names.
    pub fn bare(kind: Kind, listeners: usize) -> Message {
        Message { kind, listeners, paths: Vec::new(), bundle: Vec::new() }
    }

    pub fn pack(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bundle.len() + 256);
        let kind = KINDS.iter().position(|k| *k == self.kind).unwrap_or(0);
        for n in [kind, self.listeners, self.paths.len()] {
            out.extend_from_slice(&(n as u64).to_ne_bytes());
        }
        for p in &self.paths {
            let p = crate::paths::bytes(p);
            out.extend_from_slice(&(p.len() as u64).to_ne_bytes());
            out.extend_from_slice(p);
        }
        out.extend_from_slice(&self.bundle);
        out
    }

    /// `None`: nothing that `pack` made.
    pub fn unpack(body: &[u8]) -> Option<Message> {
        let mut rest = body;
        let mut take = |n: usize| {
            let (head, tail) = rest.split_at_checked(n)?;
            rest = tail;
            Some(head)
        };
        let number = |b: &[u8]| b.try_into().ok().map(u64::from_ne_bytes).map(|n| n as usize);
        let kind = *KINDS.get(number(take(8)?)?)?;
        let listeners = number(take(8)?)?;
        let count = number(take(8)?)?;
        let mut paths = Vec::new();
        for _ in 0..count {
            let len = number(take(8)?)?;
            paths.push(crate::paths::word(take(len)?).into());
        }
        Some(Message { kind, listeners, paths, bundle: rest.to_vec() })
    }

    /// The descriptors that came with it, as what they are.
    pub fn sort(&self, fds: Vec<OwnedFd>) -> (Vec<Listener>, Vec<(PathBuf, File)>) {
        let mut fds = fds.into_iter();
        let sockets = fds.by_ref().take(self.listeners);
        let sockets = sockets.filter_map(|fd| Listener::from_inherited(fd).ok()).collect();
        let files = self.paths.iter().cloned().zip(fds.map(File::from)).collect();
        (sockets, files)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_out_as_it_went_in() {
        let paths = vec![PathBuf::from("/a"), PathBuf::from("")];
        let m = Message { kind: Kind::Logs, listeners: 3, paths, bundle: b"text".to_vec() };
        let packed = m.pack();
        let back = Message::unpack(&packed).unwrap();
        assert_eq!((back.kind, back.listeners, &back.paths), (m.kind, 3, &m.paths));
        assert_eq!(back.bundle, b"text");
        let whole = packed.len() - 4;
        assert!((0..whole).all(|n| Message::unpack(&packed[..n]).is_none()));
    }
}
