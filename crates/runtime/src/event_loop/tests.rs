use super::*;
use crate::net::Stream;
use crate::threads::in_thread;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

fn in_loop<T>(test: impl Future<Output = T>) -> T {
    run(&(), 1, test).expect("an event loop")
}

/// A stream of the loop's, and its other end.
fn pair() -> (Stream, UnixStream) {
    let (near, far) = UnixStream::pair().expect("two sockets");
    near.set_nonblocking(true).expect("a socket that does not block");
    (Stream::from(near), far)
}

async fn read(stream: &Stream) -> Vec<u8> {
    let mut buf = Vec::new();
    poll_fn(|cx| stream.poll_read(cx, &mut buf, 100)).await.expect("bytes");
    buf
}

/// Whether there is nothing to be read; the socket is registered by that.
async fn waits(stream: &Stream) -> bool {
    poll_fn(|cx| Poll::Ready(stream.poll_readable(cx).is_pending())).await
}

async fn turns(n: usize) {
    for _ in 0..n {
        yield_now().await;
    }
}

#[test]
fn tasks_go_on_in_the_order_in_which_they_were_woken() {
    let order = in_loop(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        for n in 0..3 {
            let order = Rc::clone(&order);
            spawn(async move {
                order.borrow_mut().push(n);
                yield_now().await;
                order.borrow_mut().push(n + 10);
            });
        }
        turns(3).await;
        order.take()
    });
    assert_eq!(order, [0, 1, 2, 10, 11, 12]);
}

#[test]
fn a_task_is_woken_by_another_thread() {
    let answers = in_loop(async {
        let mut answers = Vec::new();
        for n in 0..100 {
            answers.push(in_thread(move || n).await.expect("a thread"));
        }
        answers
    });
    assert!(answers.into_iter().eq(0..100));
}

#[test]
fn a_loop_that_waits_is_woken_by_another_thread() {
    let (give, take) = std::sync::mpsc::channel::<Waker>();
    let woken = std::thread::spawn(move || {
        let waker = take.recv().expect("a waker");
        std::thread::sleep(Duration::from_millis(20));
        waker.wake();
    });
    let mut is_first = true;
    in_loop(poll_fn(|cx| {
        if std::mem::take(&mut is_first) {
            give.send(cx.waker().clone()).expect("somebody to be told");
            return Poll::Pending;
        }
        Poll::Ready(())
    }));
    woken.join().expect("a thread");
}

#[test]
fn a_task_that_was_aborted_is_dropped_and_goes_on_no_more() {
    in_loop(async {
        let (kept, ran) = (Rc::new(()), Rc::new(Cell::new(0)));
        let (held, counted) = (Rc::clone(&kept), Rc::clone(&ran));
        let task = spawn(async move {
            let _held = held;
            loop {
                counted.set(counted.get() + 1);
                yield_now().await;
            }
        });
        turns(2).await;
        assert!(!task.is_finished() && ran.get() > 0);
        let before = ran.get();
        task.abort();
        task.finished().await;
        assert_eq!((ran.get(), Rc::strong_count(&kept)), (before, 1));
    });
}

#[test]
fn a_task_may_abort_itself() {
    in_loop(async {
        let own = Rc::new(RefCell::new(None::<Task>));
        let mine = Rc::clone(&own);
        let task = spawn(async move {
            mine.borrow().as_ref().expect("a task").abort();
            yield_now().await;
            panic!("it goes on");
        });
        own.replace(Some(task));
        turns(2).await;
        assert!(own.take().expect("a task").is_finished());
    });
}

#[test]
fn a_panic_ends_its_task_alone() {
    in_loop(async {
        let task = spawn(async { panic!("on purpose") });
        let other = spawn(async {});
        task.finished().await;
        other.finished().await;
    });
}

#[test]
fn a_waker_that_outlives_its_task_wakes_nobody() {
    let wakers = Rc::new(RefCell::new(Vec::<Waker>::new()));
    in_loop(async {
        let kept = Rc::clone(&wakers);
        let gone = spawn(poll_fn(move |cx| {
            kept.borrow_mut().push(cx.waker().clone());
            Poll::Ready(())
        }));
        gone.finished().await;
        shrink();
        let polled = Rc::new(Cell::new(0));
        let counted = Rc::clone(&polled);
        let next = spawn(poll_fn(move |_| {
            counted.set(counted.get() + 1);
            Poll::Pending
        }));
        turns(2).await;
        assert_eq!(polled.get(), 1);
        wakers.borrow().iter().for_each(Waker::wake_by_ref);
        turns(2).await;
        assert_eq!(polled.get(), 1);
        next.abort();
        next.finished().await;
    });
    // Neither does one that outlives its loop, from whatever thread.
    let waker = wakers.take().pop().expect("a waker");
    waker.wake_by_ref();
    std::thread::spawn(move || waker.wake()).join().expect("a thread");
}

#[test]
fn tasks_that_are_left_are_dropped_with_the_loop_and_so_are_those_begun_by_that() {
    struct Begins(Rc<()>);
    impl Drop for Begins {
        fn drop(&mut self) {
            let kept = Rc::clone(&self.0);
            spawn(async move {
                let _kept = kept;
                std::future::pending().await
            });
        }
    }
    let kept = Rc::new(());
    let begins = Begins(Rc::clone(&kept));
    in_loop(async {
        spawn(async move {
            let _begins = begins;
            std::future::pending().await
        });
        yield_now().await;
    });
    assert_eq!(Rc::strong_count(&kept), 1);
}

#[test]
fn the_system_is_asked_however_busy_tasks_are() {
    in_loop(async {
        let (stream, mut far) = pair();
        spawn(async {
            loop {
                // Woken at once, without letting others have a turn.
                let mut is_first = true;
                poll_fn(|cx| match std::mem::take(&mut is_first) {
                    true => {
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                    false => Poll::Ready(()),
                })
                .await;
            }
        });
        let reading = async { read(&stream).await };
        let writing = async {
            turns(1).await;
            far.write_all(b"here").expect("room");
        };
        assert_eq!(tokio::join!(reading, writing).0, b"here");
    });
}

#[test]
fn an_end_that_came_with_the_last_bytes_is_seen_behind_them() {
    in_loop(async {
        let (stream, mut far) = pair();
        let reading = async { (read(&stream).await, read(&stream).await) };
        let writing = async {
            turns(1).await;
            far.write_all(b"last").expect("room");
            drop(far);
        };
        assert_eq!(tokio::join!(reading, writing).0, (b"last".to_vec(), Vec::new()));
    });
}

#[test]
fn one_reads_and_another_writes_and_both_are_woken() {
    in_loop(async {
        let (stream, mut far) = pair();
        far.set_nonblocking(true).expect("a socket");
        let text = [7; 64 * 1024];
        let mut sent = 0;
        while let Ok(n) = stream.try_write(&[std::io::IoSlice::new(&text)], false) {
            sent += n;
        }
        let reading = async { read(&stream).await };
        let pieces = [std::io::IoSlice::new(&text)];
        let writing =
            async { poll_fn(|cx| stream.poll_write(cx, &pieces, false)).await.expect("room") };
        let other = async {
            turns(1).await;
            let mut got = vec![0; sent];
            far.read_exact(&mut got).expect("what was sent");
            turns(1).await;
            far.write_all(b"back").expect("room");
        };
        let (got, more, ()) = tokio::join!(reading, writing, other);
        assert_eq!(got, b"back");
        assert!(more > 0);
    });
}

/// Counts how often the system has been asked.
#[derive(Default)]
struct Asked(Cell<usize>);

impl Turns for Asked {
    fn goes_on(&self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_task_whose_socket_is_always_ready_lets_others_go_on() {
    let asked = Asked::default();
    let reads = async {
        let (stream, mut far) = pair();
        // A socket is registered when it has been found empty.
        assert!(waits(&stream).await);
        far.write_all(&[1; 1000]).expect("room");
        let before = asked.0.get();
        let task = spawn(async move {
            for _ in 0..1000 {
                let mut one = Vec::new();
                poll_fn(|cx| stream.poll_read(cx, &mut one, 1)).await.expect("a byte");
            }
        });
        task.finished().await;
        before
    };
    let before = run(&asked, 1, reads).expect("an event loop");
    assert!(asked.0.get() - before >= 1000 / usize::from(CALLS_PER_TURN_MAX));
}

/// Each task works for as long as a turn may: no two do so in one.
#[test]
fn tasks_behind_long_work_wait_until_the_system_has_been_asked() {
    let asked = Rc::new(Asked::default());
    let works = async {
        let tasks: Vec<Task> = (0..5)
            .map(|_| {
                let asked = Rc::clone(&asked);
                spawn(async move {
                    assert!(!is_spent());
                    let begin = asked.0.get();
                    worked(Duration::from_micros(WORK_PER_TURN_MAX_MICROS.into()));
                    assert!(is_spent() && begin == asked.0.get());
                })
            })
            .collect();
        let begin = asked.0.get();
        for task in tasks {
            task.finished().await;
        }
        asked.0.get() - begin
    };
    assert!(run(&*asked, 1, works).expect("an event loop") >= 5);
}

#[test]
fn what_stands_behind_urgent_data_is_read() {
    in_loop(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let far = std::net::TcpStream::connect(addr).expect("a connection");
        let (near, _) = listener.accept().expect("a connection");
        near.set_nonblocking(true).expect("a socket that does not block");
        let stream = Stream::from(near);
        assert!(waits(&stream).await);
        for (text, flags) in [
            ("hello", rustix::net::SendFlags::MORE),
            ("!", rustix::net::SendFlags::OOB | rustix::net::SendFlags::MORE),
            ("world", rustix::net::SendFlags::empty()),
        ] {
            rustix::net::send(&far, text.as_bytes(), flags).expect("room");
        }
        assert_eq!(read(&stream).await, b"hello");
        assert_eq!(read(&stream).await, b"world");
    });
}

#[test]
fn a_socket_that_was_given_away_is_heard_of_no_more() {
    in_loop(async {
        let (stream, mut far) = pair();
        // SAFETY: the descriptor is open; the copy is owned by nobody else.
        let lent = unsafe { std::os::fd::BorrowedFd::borrow_raw(stream.fd()) };
        let kept = lent.try_clone_to_owned().expect("a copy");
        assert!(stream.peek().is_err());
        assert!(waits(&stream).await);
        stream.leave();
        far.write_all(b"for the other").expect("room");
        turns(2).await;
        assert!(stream.peek().is_err(), "nothing was noted");
        drop(kept);
    });
}

#[test]
fn memory_for_many_is_let_go_of() {
    in_loop(async {
        let tasks: Vec<_> = (0..1000).map(|_| spawn(std::future::pending())).collect();
        let mut pairs: Vec<_> = (0..100).map(|_| pair()).collect();
        for (stream, _) in &pairs {
            assert!(waits(stream).await);
        }
        tasks.iter().for_each(Task::abort);
        for task in tasks {
            task.finished().await;
        }
        pairs.truncate(1);
        shrink();
        let kept = with(|l| (l.tasks.borrow().places(), l.watched.borrow().places()));
        assert_eq!(kept, Some((1, 2)), "what is left are timers, and one socket");
        let (_, far) = &mut pairs[0];
        far.write_all(b"still").expect("room");
        assert_eq!(read(&pairs[0].0).await, b"still");
    });
}
