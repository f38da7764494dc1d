//! Backends: requests are passed on to other servers, by one of several protocols, and what they
//! answer may be kept.
//!
//! The engine (tries, the exchange with a server, the relay of its answer, the cache's hook) knows a
//! protocol only by its `Family`, a table of constants and functions.

#![warn(missing_docs, unreachable_pub)]

mod ahead;
mod ask;
mod attempt;
mod balanced;
mod bits;
mod cache;
mod check;
mod conf;
mod decoder;
mod dyups;
mod exchange;
mod families;
mod family;
mod fault;
mod framing;
mod h2;
mod health;
mod hide;
mod kept;
mod link;
mod params;
mod reach;
mod relay;
mod respond;
mod rows;
mod run;
mod sending;
mod sticky;
mod target;
mod toward;
mod tunnel;
mod upload;
mod upstream;

pub use cache::MODULE as CACHE;
pub use check::MODULE as CHECK;
pub use dyups::MODULE as DYUPS;
pub use families::fastcgi::MODULE as FASTCGI;
pub use families::grpc::MODULE as GRPC;
pub use families::memc::MODULE as MEMC;
pub use families::memcached::MODULE as MEMCACHED;
pub use families::proxy::MODULE as PROXY;
pub use families::proxy_connect::MODULE as PROXY_CONNECT;
pub use families::redis::MODULE as REDIS;
pub use families::redis2::MODULE as REDIS2;
pub use families::scgi::MODULE as SCGI;
pub use families::tunnel::MODULE as TUNNEL;
pub use families::uwsgi::MODULE as UWSGI;
pub use health::rows::MODULE as HEALTH;
pub use link::reply::{BadBody, BodyReader};
pub use sticky::rows::MODULE as STICKY;
pub use sticky::session_rows::MODULE as SESSION_STICKY;
pub use upstream::{HTTP_ONLY as UPSTREAM_HTTP_ONLY, MODULE as UPSTREAM};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_begin_with_their_family() {
        let families = [
            (FASTCGI, "fastcgi_"),
            (GRPC, "grpc_"),
            (MEMC, "memc_"),
            (MEMCACHED, "memcached_"),
            (PROXY, "proxy_"),
            (REDIS, "redis_"),
            (REDIS2, "redis2_"),
            (SCGI, "scgi_"),
            (UWSGI, "uwsgi_"),
        ];
        for (family, prefix) in families {
            let other = family.rows.iter().find(|r| !r.name.starts_with(prefix));
            assert_eq!(other.map(|r| r.name), None, "{prefix}");
        }
    }
}
