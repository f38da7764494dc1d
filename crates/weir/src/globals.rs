//! The main and `events` contexts: nginx's `ngx_core_module` and `ngx_event_core_module`.

use crate::loaded;
use std::path::PathBuf;
use std::sync::Arc;
use weir_core::error_log::{error_log_sink, push_log};
use weir_core::logger::ErrorLog;
use weir_core::rollback::Rules;
use weir_core::thread_pools;
use weir_http::build;
use weir_module::first::{flag, msec, num, offset};
use weir_module::{
    set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, Val,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// A CPU each, in order; limited to a mask when one is given.
    Auto(Option<u128>),
    Masks(Vec<u128>),
}

/// What the process as a whole is told.
#[derive(Default)]
pub struct Global {
    pub daemon: Val<bool>,
    pub master_process: Val<bool>,
    pub pid: Val<PathBuf>,
    pub lock_file: Val<()>,
    pub user: Val<(String, Option<String>)>,
    /// `None` is auto.
    pub worker_processes: Val<Option<usize>>,
    pub worker_priority: Val<i32>,
    pub worker_cpu_affinity: Val<Affinity>,
    pub worker_rlimit_nofile: Val<u64>,
    pub worker_rlimit_core: Val<u64>,
    pub worker_shutdown_timeout: Val<u64>,
    pub working_directory: Val<PathBuf>,
    pub timer_resolution: Val<u64>,
    pub error_log: Val<Arc<ErrorLog>>,
    pub worker_connections: Val<usize>,
    pub multi_accept: Val<bool>,
    pub accept_mutex: Val<bool>,
    pub accept_mutex_delay: Val<u64>,
    pub events: Val<()>,
    pub use_method: Val<()>,
    pub pcre_jit: Val<bool>,
    pub env: Vec<(String, Option<String>)>,
    pub google_perftools_profiles: Val<PathBuf>,
    /// Names of the files of `load_module`, without `.so`.
    pub loaded_modules: Vec<String>,
}

impl ConfType for Global {
    const LEVEL: Level = Level::Global;
    slot!();
}

impl Global {
    pub fn workers(&self) -> usize {
        match self.worker_processes.as_option() {
            None => 1,
            Some(Some(n)) => *n,
            Some(None) => cpus(),
        }
    }

    pub fn connections(&self) -> usize {
        self.worker_connections.as_option().copied().unwrap_or(512)
    }

    /// The CPUs worker `n` is pinned to, if any.
    pub fn cpus_of(&self, n: usize) -> Option<Vec<usize>> {
        let bits = |mask: u128| (0..128).filter(|b| mask & (1 << b) != 0).collect::<Vec<usize>>();
        match self.worker_cpu_affinity.as_option()? {
            Affinity::Masks(m) => m.get(n).or(m.last()).map(|mask| bits(*mask)),
            Affinity::Auto(mask) => {
                let mut allowed = bits(mask.unwrap_or(u128::MAX));
                allowed.retain(|c| *c < cpus());
                (!allowed.is_empty()).then(|| vec![allowed[n % allowed.len()]])
            }
        }
    }
}

pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

const MAIN: Context = Context::MAIN;
const EVENTS: Context = Context::EVENTS;
/// What the kernel makes a pipe of, and lets anybody.
const PIPE_BYTES: std::ops::RangeInclusive<u64> = 4096..=1024 * 1024;

/// Logs are opened as they are read: those behind it are made by the umask where the process stays.
fn set_daemon(cf: &mut Cf, d: &Directive) -> ConfResult {
    let is_daemon = flag(d)?;
    weir_runtime::trusted::obey_umask(!is_daemon);
    cf.get::<Global>().daemon.once(d, is_daemon)
}

pub const ROWS: &[Row] = &[
    Row::new("daemon", MAIN, Arity::FLAG, "on", "Run in the background.", set_daemon).note("A reload that changes it logs a warning: only a restart can. Where it is off, error logs named behind it, access logs and the pid file are made by the umask, as in nginx; all others can be read by all."),
    Row::new("master_process", MAIN, Arity::FLAG, "on", "Run a master beside the serving process.", set!(Cf::get::<Global>, master_process, flag)).note("A master runs when started as root; otherwise one process does both. A reload that changes it logs a warning: only a restart can."),
    Row::new("timer_resolution", MAIN, Arity::ONE, "", "How often the clock is read.", set!(Cf::get::<Global>, timer_resolution, msec)).note("Not needed: reading the clock is no system call."),
    Row::new("pid", MAIN, Arity::ONE, "logs/nginx.pid", "File with the main process's number.", |cf, d| {
        let path = cf.full_path(d.arg(0));
        cf.get::<Global>().pid.once(d, path)
    }),
    Row::new("lock_file", MAIN, Arity::ONE, "logs/nginx.lock", "Lock file for systems without atomics.", |cf, d| cf.get::<Global>().lock_file.once(d, ())).note("Not needed: workers share memory."),
    Row::new("worker_processes", MAIN, Arity::ONE, "1", "Number of workers, or auto.", set_workers).note("Workers are threads of one process."),
    Row::new("worker_priority", MAIN, Arity::ONE, "0", "Scheduling priority of the workers.", set_priority).note("A reload that changes it starts a new serving process, with what env says of that."),
    Row::new("worker_cpu_affinity", MAIN, Arity::ONE_MORE, "", "CPUs of each worker: masks, or auto.", set_affinity),
    Row::new("worker_rlimit_nofile", MAIN, Arity::ONE, "", "Most open files.", set!(Cf::get::<Global>, worker_rlimit_nofile, num)).note("Of each worker, as in nginx: the workers are threads of one process, whose limit is this times their number. Without the directive the limit it is started with (ulimit -n) is multiplied too, where that is allowed; where it is not and worker_connections exceed a worker's part, a warning says so."),
    Row::new("worker_rlimit_core", MAIN, Arity::ONE, "", "Largest core file.", set!(Cf::get::<Global>, worker_rlimit_core, offset)),
    Row::new("worker_shutdown_timeout", MAIN, Arity::ONE, "", "Longest graceful shutdown.", set!(Cf::get::<Global>, worker_shutdown_timeout, msec)).note("After a reload it ends the requests in progress, not the connections that wait for one."),
    Row::new("working_directory", MAIN, Arity::ONE, "", "Directory for core files.", |cf, d| {
        let path = cf.full_path(d.arg(0));
        cf.get::<Global>().working_directory.once(d, path)
    }).note("A reload that changes it starts a new serving process, with what env says of that."),
    Row::new("env", MAIN, Arity::ONE, "TZ", "Environment variable kept or set. Of the others none is left; TZ is, and what LuaJIT looks for (LUA_PATH and its kin).", set_env).note("A reload that changes it (or user, worker_priority, working_directory) starts a new serving process on the same sockets. It shares no memory with the old one: shared zones (limits, counters, states of peers, sticky sessions) begin empty there, where nginx's stay, and UDP sessions begin anew, while the old process finishes what it has by its own zones. So does a serving process that is started again because it has died, or by HUP after WINCH."),
    Row::new("debug_points", MAIN, Arity::ONE, "", "What an internal error does.", |_, d| d.choice(0, &[("stop", ()), ("abort", ())])).once().note("Internal errors are panics, caught per connection and logged."),
    Row::new("load_module", MAIN, Arity::ONE, "", "A module from a file.", loaded::set).note("Loads nothing, and looks at no file: all modules that Weir has are built in. One notice names those that nginx and its packages have; another's name is a warning. Directives of a module that Weir has not are refused where they stand."),
    Row::new("pcre_jit", MAIN, Arity::FLAG, "off", "Compile regular expressions to machine code.", set!(Cf::get::<Global>, pcre_jit, flag)).note("Always on where the machine supports it. A subject too long for it is matched without it, as by nginx with \"off\"; a match may take 1,000,000 steps (10,000,000 on more than 32 KB, which is what nginx allows at any length) and 512 MB, else the request ends with 500."),
    Row::new("ssl_object_cache_inheritable", MAIN, Arity::FLAG, "on", "A reload may keep certificates and keys whose files are unchanged.", |_, d| d.flag().map(|_| ())).once().note("A reload reads them anew in any case, so that no change is missed."),
    Row::new("google_perftools_profiles", MAIN, Arity::ONE, "", "File for a profile of the processor's time, with the process's number behind its name.", |cf, d| {
        let path = cf.full_path(d.arg(0));
        cf.get::<Global>().google_perftools_profiles.once(d, path)
    }).note("A file of the serving process for all its workers, written when it ends or a reload takes the directive away, as its user; gzipped protobuf, which pprof reads as it does gperftools' own format. A relative name begins at the prefix. gperftools is not needed. \"weir profile\" makes one of a server that runs without the directive."),
    Row::new("thread_pool", MAIN, Arity::TWO_THREE, "default threads=32 max_queue=65536", "A named pool for file reads.", set_thread_pool).note("One pool of at most 32 threads per worker serves all names for files; threads are started by need. ngx.run_worker_thread of Lua has threads of its own, of which as many are at work at a time as the name says."),
    Row::new("user", MAIN, Arity::ONE_TWO, "nobody nobody", "User and group of the serving process.", |cf, d| {
        if !weir_runtime::process::HAS_USERS {
            // nginx's words there.
            cf.warn(d, "\"user\" is not supported, ignored: the process stays who has started it");
        }
        if weir_runtime::process::is_root() {
            let group = (d.args.len() > 1).then(|| d.text(1)).transpose()?;
            weir_runtime::process::lookup(d.text(0)?, group).map_err(|e| d.bad(0, e))?;
        }
        let v = (d.text(0)?.to_string(), match d.args.len() { 2 => Some(d.text(1)?.to_string()), _ => None });
        cf.get::<Global>().user.once(d, v)
    }).note("A reload that changes it starts a new serving process, with what env says of that."),
    Row::new("error_log", MAIN, Arity::ONE_MORE, "logs/error.log error", "Where errors are logged.", |cf, d| {
        let sink = error_log_sink(cf, d)?;
        push_log(&mut cf.get::<Global>().error_log, sink);
        Ok(())
    })
    .note("Control characters are written as \\x0A and the like in lines about a connection, so that nobody else writes lines of the log; nginx writes them as they are. Tengine's \"pipe:COMMAND\" and \"pipe:rollback FILE\" are as access_log has them."),
    Row::new("pipe_set_size", MAIN, Arity::ONE, "64k", "What the pipe to a log's program holds (Tengine).", |cf, d| {
        let bytes = weir_module::first::size(d)?;
        let range = PIPE_BYTES;
        if !range.contains(&bytes) {
            return Err(d.bad(0, format!("the size is not between {}k and {}m", range.start() >> 10, range.end() >> 20)));
        }
        cf.get::<Rules>().pipe_bytes.once(d, bytes)
    })
    .note("Of access_log and error_log with \"pipe:COMMAND\". What a program leaves unread beyond it waits in up to 1m of memory for each log."),
    Row::block("events", MAIN, Arity::NONE, "Connection processing.", |cf, d| {
        cf.get::<Global>().events.once(d, ())?;
        cf.walk(EVENTS, d.children())
    }),
    Row::new("worker_connections", EVENTS, Arity::ONE, "512", "Most connections of one worker.", |cf, d| {
        let n = weir_base::units::parse_int(d.arg(0)).ok_or_else(|| {
            let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
            d.bad(0, format!("invalid number \"{shown}\""))
        })? as usize;
        cf.get::<Global>().worker_connections.once(d, n)
    })
    .note("Clients' connections are counted; connections to servers are not."),
    Row::new("use", EVENTS, Arity::ONE, "", "Method of waiting for connections.", set_use).note("epoll on Linux, I/O completion ports on Windows; another method of the same system is accepted and the best one used."),
    Row::new("multi_accept", EVENTS, Arity::FLAG, "off", "Accept all waiting connections at once.", set!(Cf::get::<Global>, multi_accept, flag)).note("Of a socket of its own (reuseport, or a single worker) a worker always accepts until nobody waits."),
    Row::new("accept_mutex", EVENTS, Arity::FLAG, "off", "Workers accept in turns.", set!(Cf::get::<Global>, accept_mutex, flag)).note("Not needed: all workers watch a shared socket, and one that comes too late goes back to sleep. With reuseport each has a socket of its own; while a worker is stuck, the others accept from its too."),
    Row::new("accept_mutex_delay", EVENTS, Arity::ONE, "500ms", "How long a worker waits for its turn.", set!(Cf::get::<Global>, accept_mutex_delay, msec)).note("Not needed: see accept_mutex."),
    Row::new("epoll_events", EVENTS, Arity::ONE, "512", "Events taken from the kernel at once.", |_, d| d.num(0).map(|_| ())).once().note("Up to 1024 at once; the value is checked and not needed."),
    Row::new("worker_aio_requests", EVENTS, Arity::ONE, "32", "Outstanding kernel AIO requests.", |_, d| d.num(0).map(|_| ())).once().note("Kernel AIO is not used: see aio."),
    Row::new("debug_connection", EVENTS, Arity::ONE, "", "Debug log for some clients.", |_, d| {
        let mut e = d.error("is refused: there is no debug log per client");
        e.hint = Some("remove it; \"error_log … debug\" logs for all clients".into());
        Err(e)
    }),
    Row::block("stream", MAIN, Arity::NONE, "TCP and UDP sessions.", |cf, d| weir_stream::set_stream(cf, d, crate::modules::STREAM)),
    Row::block("mail", MAIN, Arity::NONE, "IMAP, POP3 and SMTP sessions.", |cf, d| weir_mail::set_mail(cf, d, crate::modules::MAIL)),
    Row::block("http", MAIN, Arity::NONE, "The HTTP server.", |cf, d| build::set_http(cf, d, crate::modules::MODULES)),
];

/// More workers than this is a slip of the finger.
const WORKERS_MAX: u64 = 1024;

fn set_workers(cf: &mut Cf, d: &Directive) -> ConfResult {
    let n = match d.arg(0) {
        b"auto" => None,
        _ => {
            let n =
                weir_base::units::parse_int(d.arg(0)).ok_or_else(|| d.error("invalid value"))?;
            if n == 0 || n > WORKERS_MAX {
                return Err(
                    d.bad(0, format!("\"worker_processes\" must be from 1 to {WORKERS_MAX}"))
                );
            }
            Some(n as usize)
        }
    };
    cf.get::<Global>().worker_processes.once(d, n)
}

fn set_priority(cf: &mut Cf, d: &Directive) -> ConfResult {
    let text = d.text(0)?;
    let n: i32 = text.parse().map_err(|_| d.error("invalid number"))?;
    cf.get::<Global>().worker_priority.once(d, n)
}

fn set_affinity(cf: &mut Cf, d: &Directive) -> ConfResult {
    let auto = d.arg(0) == b"auto";
    if auto && d.args.len() > 2 {
        return Err(d.fail("invalid number of arguments in \"worker_cpu_affinity\" directive"));
    }
    let masks: Vec<u128> =
        (usize::from(auto)..d.args.len()).map(|i| mask(d, i)).collect::<ConfResult<_>>()?;
    let v = if auto { Affinity::Auto(masks.first().copied()) } else { Affinity::Masks(masks) };
    cf.get::<Global>().worker_cpu_affinity.once(d, v)
}

fn mask(d: &Directive, i: usize) -> ConfResult<u128> {
    let text = d.text(i)?.replace(' ', "");
    let ok = !text.is_empty() && text.len() <= 128 && text.bytes().all(|b| b == b'0' || b == b'1');
    match ok {
        true => u128::from_str_radix(&text, 2).map_err(|_| d.invalid(i)),
        false => {
            Err(d.bad(i, format!("invalid character in \"worker_cpu_affinity\" mask \"{text}\"")))
        }
    }
}

fn set_env(cf: &mut Cf, d: &Directive) -> ConfResult {
    let text = d.text(0)?;
    let v = match text.split_once('=') {
        Some((k, v)) => (k.to_string(), Some(v.to_string())),
        None => (text.to_string(), None),
    };
    cf.get::<Global>().env.push(v);
    Ok(())
}

fn set_use(cf: &mut Cf, d: &Directive) -> ConfResult {
    if !matches!(d.arg(0), b"epoll" | b"poll" | b"select" | b"iocp") {
        let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
        return Err(d.bad(0, format!("invalid event type \"{shown}\"")));
    }
    cf.get::<Global>().use_method.once(d, ())
}

fn set_thread_pool(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.text(0)?.to_string();
    for i in 1..d.args.len() {
        let value = d.keyed(i, "threads").or_else(|| d.keyed(i, "max_queue"));
        if value.and_then(weir_base::units::parse_int).is_none() {
            let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
            return Err(d.bad(i, format!("invalid parameter \"{shown}\"")));
        }
    }
    if !(1..d.args.len()).any(|i| d.keyed(i, "threads").is_some()) {
        return Err(
            d.fail(format!("\"threads\" parameter must be specified for thread pool \"{name}\""))
        );
    }
    let threads = (1..d.args.len()).find_map(|i| d.keyed(i, "threads"));
    let threads = threads.and_then(weir_base::units::parse_int).unwrap_or(0);
    if !thread_pools::declare(cf, &name, usize::try_from(threads).unwrap_or(usize::MAX)) {
        return Err(d.fail(format!("duplicate thread pool \"{name}\"")));
    }
    Ok(())
}
