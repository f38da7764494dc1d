//! `proxy_pass` (nginx's `ngx_stream_proxy_module`): a session's bytes go to a server, and the server's
//! to the client.

mod balanced;
mod connect;
mod datagrams;
mod rows;
mod toward;
mod way;

pub use toward::{speaks_tls, Lent};

pub use rows::MODULE;
pub(crate) use way::{upstream_of, Way};

use crate::Session;
use std::sync::Arc;
use weir_core::bind::Bind;
use weir_core::proxy_header::Sent;
use weir_core::LocalFuture;
use weir_module::{merge_values, slot, ConfResult, ConfType, Level, Val};
use weir_script::template::Template;
use weir_upstream::{Outgoing, UpstreamRef};

/// Where sessions go.
#[derive(Clone)]
enum Pass {
    Fixed(UpstreamRef),
    Vars(Arc<Template>),
}

#[derive(Default)]
struct ProxySrv {
    pass: Option<Pass>,
    bind: Val<Option<Bind>>,
    socket_keepalive: Val<bool>,
    socket_rcvbuf: Val<u64>,
    socket_sndbuf: Val<u64>,
    connect_timeout: Val<u64>,
    timeout: Val<u64>,
    buffer_size: Val<u64>,
    upload_rate: Val<Option<Arc<Template>>>,
    download_rate: Val<Option<Arc<Template>>>,
    requests: Val<u64>,
    responses: Val<u64>,
    next_upstream: Val<bool>,
    next_upstream_tries: Val<u64>,
    next_upstream_timeout: Val<u64>,
    proxy_protocol: Val<Sent>,
    half_close: Val<bool>,
    ssl: Val<bool>,
    tls: Outgoing,
    /// What servers are offered by ALPN.
    alpn: Val<Arc<Vec<Template>>>,
}

impl ConfType for ProxySrv {
    const LEVEL: Level = Level::Server;
    slot!();

    fn merge(&mut self, parent: &ProxySrv) -> ConfResult {
        merge_values!(self, parent;
            bind = None,
            socket_keepalive = false,
            socket_rcvbuf = 0,
            socket_sndbuf = 0,
            connect_timeout = 60_000,
            timeout = 600_000,
            buffer_size = 16 * 1024,
            upload_rate = None,
            download_rate = None,
            requests = 0,
            responses = u64::MAX,
            next_upstream = true,
            next_upstream_tries = 0,
            next_upstream_timeout = 0,
            proxy_protocol = Sent::Off,
            half_close = false,
            ssl = false,
            alpn = Arc::default(),
        );
        self.tls.merge(&parent.tls);
        Ok(())
    }
}

fn content(s: &mut Session) -> LocalFuture<'_, u16> {
    Box::pin(connect::run(s))
}
