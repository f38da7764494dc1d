//! What sessions are that servers of upstreams are asked for.

use crate::least_time::Until;
use weir_core::timing::UpstreamState;
use weir_core::Session;
use weir_module::Context;

/// A session that servers of upstreams are asked for, and what its protocol's upstreams are like.
pub trait Asks: Session {
    /// Inside an `upstream` block; the block itself stands in [`Session::BLOCK`].
    const UPSTREAM: Context;

    /// The port of a `server` that names none; without it, each must name one.
    const USUAL_PORT: Option<u16>;

    /// Clients may be kept with a server (`sticky`): a `server` takes the parameters that are about
    /// that, `route=` and `drain`.
    const STICKY: bool;

    /// A connection to a server serves one session after another, and is kept between them.
    const REUSES: bool;

    /// Answers have heads: for `least_time`, one counts only when its head has come.
    const HEADS: bool;

    /// What zones are for: nginx's are one protocol's alone.
    const ZONE: &'static str;

    /// What becomes of those that need a server that is not found, in messages.
    const WITHOUT_SERVER: &'static str;

    /// The words of `least_time`.
    const TIMES: &'static [(&'static str, Until)];

    /// The servers that have been asked, one after another.
    fn asked(&self) -> &[UpstreamState];
}
