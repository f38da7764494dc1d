//! Answers of memcached to commands, and Redis' replies and commands: the same whole and in pieces.

use super::Target;
use crate::random::Random;
use weir_wire::memc::{Command, Reply};
use weir_wire::resp::{commands, write_command, Replies};

pub const MEMC: Target = Target {
    name: "memc answer",
    seeds: &[b"STORED\r\n", b"STAT a 1\r\nSTAT b 2\r\nEND\r\n", b"VERSION 1\r\n", b"12 \r\n"],
    pieces: &[b"\r\n", b"\n", b"\r", b" ", b"STAT ", b"END", b"CLIENT_ERROR ", b"NOT_FOUND", b"\0"],
    check: memc_answer,
};

fn memc_answer(buf: &[u8], random: &mut Random) {
    let all = [Command::Set, Command::Delete, Command::Incr, Command::Stats, Command::Version];
    let command = all[random.below(all.len())];
    let read = |cuts: &[usize]| {
        let mut reply = Reply::new(command, 48);
        let (mut text, mut at) = (Vec::new(), 0);
        for &cut in cuts {
            let mut piece = buf[at..cut].to_vec();
            at = cut;
            if reply.decode(&mut piece, 0).is_err() {
                return None;
            }
            text.extend_from_slice(&piece);
        }
        assert!(text.len() < 200);
        Some((text, reply.done, reply.refused, reply.excess))
    };
    assert_eq!(read(&random.cuts(buf.len())), read(&[buf.len()]));
}

pub const REDIS: Target = Target {
    name: "redis",
    seeds: &[
        b"+OK\r\n$5\r\nab\r\nc\r\n*2\r\n:1\r\n*1\r\n$-1\r\n",
        b"*2\r\n$3\r\nget\r\n$1\r\na\r\nping\r\n",
        b"-ERR\r\n*-1\r\n",
    ],
    pieces: &[b"\r\n", b"\n", b"\r", b"*", b"$", b"+", b":", b"-1", b"3", b"99999999999999999999"],
    check: redis,
};

fn redis(buf: &[u8], random: &mut Random) {
    let count = 1 + random.below(4) as u64;
    let read = |cuts: &[usize]| {
        let mut replies = Replies::new(count);
        let (mut taken, mut at) = (0, 0);
        for &cut in cuts {
            taken += replies.take(&buf[at..cut]).ok()?;
            at = cut;
        }
        Some((taken, replies.have_ended()))
    };
    assert_eq!(read(&random.cuts(buf.len())), read(&[buf.len()]));
    // Whatever bytes words have, they are one command.
    let words: Vec<&[u8]> = buf.split(|b| *b == b'$').collect();
    let mut text = Vec::new();
    write_command(words.iter().copied(), &mut text);
    assert_eq!(commands(&text).map(|found| found.count), Some(1));
    commands(buf);
}
