use super::way::Turn;
use super::*;
use std::future::{poll_fn, Future};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use weir_runtime::event_loop;
use weir_runtime::net::Stream;

const SIZE: usize = 4096;
const TURN: usize = 8 * 1024;
/// What is spliced costs a quarter.
const TURN_MOST: u64 = 4 * TURN as u64;

/// More than are answered from one reading of the clock.
const ANSWERS: u32 = 80;

/// Our end, and the other.
fn pair() -> (Channel, UnixStream) {
    let (ours, other) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (Stream::from(ours).into(), other)
}

fn text(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|i| (i / 3) as u8).collect()
}

/// Writes as much as there is room for, behind so many bytes.
fn fill(mut to: &UnixStream, mut at: usize) -> usize {
    while let Ok(n) = to.write(&text(at, SIZE)) {
        at += n;
    }
    at
}

fn relay() -> Relay {
    let how = How { size: SIZE, waits: Waits::all(1000), half_close: false, rates: [0; 2] };
    Relay::new(how)
}

/// A turn; how many bytes were read in it, and how many have left.
async fn turn(relay: &mut Relay, ends: [&Channel; 2]) -> (u64, u64) {
    // Behind it the event loop has seen what is ready.
    event_loop::yield_now().await;
    poll_fn(|cx| {
        let before = (relay.received(CLIENT), relay.sent(CLIENT));
        let moved = relay.pump(cx, CLIENT, ends, &mut Turn::of(TURN), &AtomicU64::default());
        assert!(moved.is_ok());
        Poll::Ready((relay.received(CLIENT) - before.0, relay.sent(CLIENT) - before.1))
    })
    .await
}

fn in_event_loop(test: impl Future<Output = ()>) {
    event_loop::run(&(), 1, test).unwrap();
}

#[test]
fn a_turn_is_bounded_however_much_there_is_to_move() {
    in_event_loop(async {
        let ((client, sender), (server, mut receiver)) = (pair(), pair());
        let sent = fill(&sender, 0);
        assert!(sent as u64 > 2 * TURN_MOST);
        let (mut relay, mut most) = (relay(), 0);
        while relay.received(CLIENT) < sent as u64 {
            most = turn(&mut relay, [&client, &server]).await.0.max(most);
        }
        assert_eq!(most, TURN_MOST, "the last of them were spliced");
        let mut got = vec![0; sent];
        receiver.read_exact(&mut got).unwrap();
        assert!(got == text(0, sent));
    });
}

#[test]
fn a_way_that_is_blocked_holds_no_pipe_and_goes_on_where_it_was() {
    in_event_loop(async {
        let ((client, sender), (server, mut receiver)) = (pair(), pair());
        let ends = [&client, &server];
        let (mut relay, mut sent) = (relay(), 0);
        let mut got = Vec::new();
        for _ in 0..20 {
            // Until no more goes either in or out.
            loop {
                sent = fill(&sender, sent);
                if turn(&mut relay, ends).await == (0, 0) && turn(&mut relay, ends).await == (0, 0)
                {
                    break;
                }
            }
            assert!(!relay.ways[CLIENT].is_empty() && way::has_pipe());
            let before = got.len();
            let _ = Read::take(&mut receiver, 50_000).read_to_end(&mut got);
            assert!(got.len() > before);
        }
        assert!(got == text(0, got.len()));
    });
}

/// The clock of a worker's turn is read again after some answers, and so between any two of a relay's
/// questions: who is not read from is waited for all the same.
#[test]
fn who_is_held_back_is_waited_for_whenever_the_clock_moves() {
    in_event_loop(async {
        let ((client, mut sender), (server, _receiver)) = (pair(), pair());
        let how =
            How { size: 1, waits: Waits::all(1000), half_close: false, rates: [1_000_000; 2] };
        let mut relay = Relay::new(how);
        for answers in 0..ANSWERS {
            sender.write_all(&[0; 2]).unwrap();
            // It is read from, and then not for a while.
            relay.paced.as_mut().unwrap().pace.hold(CLIENT, clock::tick() + 2);
            (0..answers).for_each(|_| _ = clock::mono_ms());
            std::thread::sleep(std::time::Duration::from_millis(4));
            poll_fn(|cx| client.poll_readable(cx)).await.unwrap();
            poll_fn(|cx| {
                let before = relay.received(CLIENT);
                let until = relay.move_both(cx, [&client, &server], &AtomicU64::default());
                let is_held = matches!(until, Ok(Until::Paced(_)));
                assert!(is_held || relay.received(CLIENT) > before, "after {answers} answers");
                Poll::Ready(())
            })
            .await;
        }
    });
}
