//! A block of servers that serve whole connections, each reached by its addresses: what `stream` and `mail`
//! have in common, from the text to a part of a generation.

use crate::error_log::{error_log_sink, push_log};
use crate::generation::{ListenConf, PartConf, View, Virtual};
use crate::listen::{self, Reached};
use crate::logger::ErrorLog;
use crate::resolver;
use crate::Session;
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use weir_module::{
    merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Diagnostic, Directive,
    Heirs, Level, Levels, Row, SlotVtable, Slots, Val,
};
use weir_resolve::Resolver;

/// What a module's build step works on: everything merged. Slots that servers say nothing about are shared:
/// what is made of one is put into it by a `OnceLock`. [`Place`] and the protocol's own slot alone are each
/// server's own.
pub struct Build<'a> {
    /// For paths, files that are read, warnings, and whether this is a test.
    pub cf: &'a mut Cf,
    /// The block's own server level, which servers have inherited from.
    pub outer: &'a Slots,
    /// The main level's slots.
    pub main: &'a mut Slots,
    /// Each server's own slots and those that it has inherited.
    pub servers: &'a mut [Slots],
}

/// The block's own level: its servers as read.
#[derive(Default)]
pub struct Servers {
    slots: Vec<Slots>,
}

impl ConfType for Servers {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// What every server has.
#[derive(Default)]
pub struct Place {
    /// Its addresses and names.
    pub reached: Reached,
    /// `error_log`
    pub error_log: Val<Arc<ErrorLog>>,
    /// `resolver`
    pub resolver: Val<Option<Arc<Resolver>>>,
    /// `resolver_timeout`, in milliseconds.
    pub resolver_timeout: Val<u64>,
    /// What accepting a connection needs; its TLS is made when the configuration is built.
    pub base: Virtual,
}

impl ConfType for Place {
    const LEVEL: Level = Level::Server;
    slot!();

    fn merge(&mut self, parent: &Place) -> ConfResult {
        merge_values!(self, parent;
            error_log = Arc::new(ErrorLog::default()),
            resolver = None,
            resolver_timeout = 30_000,
        );
        Ok(())
    }
}

/// The slots that are the block's own.
pub const SLOTS: &[SlotVtable] = &[SlotVtable::of::<Servers>(), SlotVtable::of::<Place>()];

/// The directives that every such block has.
pub struct Rows<S>(PhantomData<S>);

impl<S: Session> Rows<S> {
    /// Those with the same defaults everywhere.
    pub const ALL: &'static [Row] = &[
        Row::new(
            "error_log",
            S::LEVELS,
            Arity::ONE_MORE,
            "logs/error.log error",
            "Where errors are logged.",
            |cf, d| {
                let sink = error_log_sink(cf, d)?;
                push_log(&mut cf.get::<Place>().error_log, sink);
                Ok(())
            },
        ),
        Row::new(
            "resolver_timeout",
            S::LEVELS,
            Arity::ONE,
            "30s",
            "Longest time for a name.",
            |cf, d| {
                let v = d.msec(0)?;
                cf.get::<Place>().resolver_timeout.once(d, v)
            },
        ),
    ];

    /// For blocks that say no more about it.
    pub const RESOLVER: Row =
        Row::new("resolver", S::LEVELS, Arity::ONE_MORE, "", "Name servers.", |cf, d| {
            let v = resolver::parse(d)?;
            cf.get::<Place>().resolver.once(d, Some(v))
        })
        .note(resolver::NOTE);
}

/// Looks up the name servers of all servers and of the block itself.
pub fn look_up_resolvers(b: &Build) -> ConfResult {
    let places = b.servers.iter().chain([b.outer]).map(|s| s.get::<Place>());
    let resolvers = places.filter_map(|p| p.resolver.as_option()).flatten();
    resolvers.into_iter().try_for_each(|r| resolver::look_up(r))
}

/// What a module of such a protocol has for reading and building a block.
pub trait Module: 'static {
    /// Those that it reads its directives into.
    fn slots(&self) -> &'static [SlotVtable];
    /// After the merge: opens, resolves, makes zones. The last place that may fail.
    fn build(&self) -> Option<fn(&mut Build) -> ConfResult>;
}

/// Reads the block; `begin` is called when its slots are there. The levels of other protocols' blocks are put
/// aside meanwhile.
pub fn read<M: Module>(
    cf: &mut Cf,
    d: &Directive,
    context: Context,
    modules: &'static [&'static M],
    begin: impl FnOnce(&mut Cf),
) -> (Levels, ConfResult) {
    let outer = take_levels(cf);
    for v in SLOTS.iter().chain(modules.iter().flat_map(|m| m.slots())) {
        match v.level {
            Level::Global => (v.create)(&mut cf.levels.global),
            Level::Main => (v.create)(&mut cf.levels.main),
            Level::Server => (v.create)(&mut cf.levels.server),
            Level::Location => (v.create)(&mut cf.levels.location),
        }
    }
    begin(cf);
    let walked = cf.walk(context, d.children());
    let read = take_levels(cf);
    put_levels(cf, outer);
    (read, walked)
}

fn take_levels(cf: &mut Cf) -> Levels {
    Levels {
        global: Slots::default(),
        main: std::mem::take(&mut cf.levels.main),
        server: std::mem::take(&mut cf.levels.server),
        location: std::mem::take(&mut cf.levels.location),
    }
}

fn put_levels(cf: &mut Cf, levels: Levels) {
    cf.levels.main = levels.main;
    cf.levels.server = levels.server;
    cf.levels.location = levels.location;
}

/// `server { … }`. What modules keep by location in `http` is the server's here: the slots of both levels
/// are joined.
pub fn read_server(cf: &mut Cf, d: &Directive, context: Context) -> ConfResult {
    let outer = take_levels(cf);
    cf.levels.main = outer.main;
    let walked = cf.walk(context, d.children());
    let mut slots = std::mem::replace(&mut cf.levels.server, outer.server);
    slots.join(std::mem::replace(&mut cf.levels.location, outer.location));
    walked?;
    let place = slots.get_mut::<Place>();
    place.reached.close(d);
    if place.reached.listens.is_empty() {
        return Err(d.fail("no \"listen\" is defined for server"));
    }
    cf.get::<Servers>().slots.push(slots);
    Ok(())
}

/// A protocol's part and the sockets that it listens on.
pub type Made = (PartConf, Vec<ListenConf>);

/// What `assemble` makes of main level and servers: what workers share, and each server's base.
pub type Assembled<C> = ConfResult<(C, Vec<Arc<Virtual>>)>;

/// Merges what the configuration said and makes the protocol's part of a generation, with its sockets.
pub fn finish<M: Module, C: Any + Send + Sync>(
    cf: &mut Cf,
    levels: Levels,
    error_log: &Arc<ErrorLog>,
    modules: &'static [&'static M],
    assemble: impl FnOnce(Slots, Vec<Slots>) -> Assembled<C>,
    (protocol, view): (&'static str, View),
) -> ConfResult<Made> {
    let outer = take_levels(cf);
    put_levels(cf, levels);
    let merged = merge(cf, error_log, modules);
    let main = std::mem::take(&mut cf.levels.main);
    put_levels(cf, outer);
    let (shared, servers) = assemble(main, merged?)?;
    let reached: Vec<_> = servers.iter().map(|s| &s.conf::<Place>().reached).collect();
    let sockets = listen::gather(cf, &reached)?;
    Ok((PartConf { protocol, servers, shared: Arc::new(shared), view }, sockets))
}

fn merge<M: Module>(
    cf: &mut Cf,
    error_log: &Arc<ErrorLog>,
    modules: &'static [&'static M],
) -> ConfResult<Vec<Slots>> {
    let mut outer = std::mem::take(&mut cf.levels.server);
    outer.join(std::mem::take(&mut cf.levels.location));
    let place = outer.get_mut::<Place>();
    if !place.error_log.is_set() {
        place.error_log.set(Arc::clone(error_log));
    }
    let mut servers = std::mem::take(&mut cf.get::<Servers>().slots);
    let vtables = SLOTS.iter().chain(modules.iter().flat_map(|m| m.slots()));
    let mut heirs = Heirs::new(&[Level::Server, Level::Location], vtables);
    for slots in &mut servers {
        cf.go_on()?;
        let at = slots.get::<Place>().reached.at;
        let place = |e: Diagnostic| match (e.at, at) {
            (None, Some(at)) => e.at(at),
            _ => e,
        };
        heirs.fill(slots, &outer, false).map_err(place)?;
    }
    for build in modules.iter().filter_map(|m| m.build()) {
        cf.go_on_after_long()?;
        let mut main = std::mem::take(&mut cf.levels.main);
        let done = build(&mut Build { cf, outer: &outer, main: &mut main, servers: &mut servers });
        cf.levels.main = main;
        done?;
    }
    Ok(servers)
}

/// A server's base, of its merged slots, which it keeps.
pub fn base_of(mut slots: Slots, tcp_nodelay: bool) -> Arc<Virtual> {
    let place = slots.get_mut::<Place>();
    let base = Virtual {
        tcp_nodelay,
        error_log: Arc::clone(&place.error_log),
        resolver: (*place.resolver).clone(),
        resolver_timeout_ms: *place.resolver_timeout,
        ..std::mem::take(&mut place.base)
    };
    Arc::new(Virtual { slots, ..base })
}
