//! `ngx.run_worker_thread`: code in a Lua state of its own, on a thread of its own.

use crate::apart::{self, Job};
use crate::crossing::{Answer, Args};
use crate::machine::{code, items, List, OpRow, State};
use crate::run::context::{APART, WAITING};
use crate::run::{Reply, Told, WaitFor};
use std::future::poll_fn;
use std::rc::Rc;
use weir_core::thread_pools;
use weir_runtime::event_loop;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("worker_thread", WAITING, begin),
    OpRow::any("apart_job", APART, |state, _, answer| {
        let mut list = answer.list();
        state.run.args.iter().for_each(|text| {
            list.text(text);
        });
        code::LIST
    }),
    OpRow::any("apart_done", APART, |state, args, _| {
        state.run.result = Some(args.a.to_vec());
        code::TRUE
    }),
];

fn refuse(answer: &mut Answer, why: impl AsRef<[u8]>) -> i32 {
    answer.list().boolean(false).text(why.as_ref());
    code::LIST
}

/// `a`: the pool, the module, the function, the arguments as the Lua side packs them, and where modules are looked for.
/// Whether it was done, and the results as they are packed there, or why not.
fn begin(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let mut words = items(args.a);
    if words.is_empty() {
        return code::NIL;
    }
    let pool = words.remove(0);
    let vm = Rc::clone(&state.run.vm);
    let Some(threads) = thread_pools::threads_of(&vm.gen.global, pool) else {
        let shown = String::from_utf8_lossy(pool);
        return refuse(answer, format!("thread pool {shown} not found"));
    };
    let set = vm.main().and_then(|main| main.apart.as_option().copied());
    let max = set.unwrap_or(apart::USUAL);
    let thread = match vm.threads.lease(&vm.gen, vm.block, max) {
        Ok(Some(thread)) => thread,
        Ok(None) => return refuse(answer, "no available Lua vm"),
        Err(e) => return refuse(answer, format!("no thread: {}", weir_core::os_text(&e))),
    };
    let job = Job { words: words.iter().map(|word| word.to_vec()).collect() };
    let places = vm.threads.places(pool, threads);
    let told = Rc::new(Told::default());
    let teller = Rc::clone(&told);
    // It ends even if nobody waits for it any more: what runs there cannot be broken off.
    event_loop::spawn(async move {
        places.take().await;
        let done = thread.ask(job).await;
        places.post(1.0);
        vm.threads.give_back(thread, done.is_some());
        let mut text = Vec::new();
        let mut list = List(&mut text);
        match done {
            Some(Ok(results)) => list.boolean(true).text(&results),
            Some(Err(why)) => list.boolean(false).text(&why),
            None => list.boolean(false).text(b"the thread has broken off"),
        };
        teller.tell(Reply { code: code::LIST, x: 0.0, text });
    });
    state.wait(WaitFor::Future(Box::pin(async move { poll_fn(|cx| told.poll(cx)).await })), answer)
}
