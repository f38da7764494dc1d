//! Which paths there are, since which version, and where in the tree they lead.

use super::refusal::{Outcome, Refusal};

/// The newest version of the API.
pub(crate) const VERSION: u8 = 9;

/// What stands at a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// The names of what is below.
    Folder,
    /// Figures.
    One,
    /// Things by their names, or in a list by their numbers; what is said of one that is not there.
    Many(&'static str, &'static str),
}

/// A path of the API.
#[derive(Debug)]
pub(crate) struct Place {
    /// Behind the version.
    pub path: &'static str,
    pub since: u8,
    pub kind: Kind,
    /// Its figures (or those of one of the many) may begin anew.
    pub resets: bool,
}

const fn place(path: &'static str, since: u8, kind: Kind, resets: bool) -> Place {
    Place { path, since, kind, resets }
}

const SERVER_ZONE: Kind = Kind::Many("ServerZoneNotFound", "server zone not found");
const LOCATION_ZONE: Kind = Kind::Many("LocationZoneNotFound", "location zone not found");
const LIMIT_CONN: Kind = Kind::Many("LimitConnNotFound", "limit_conn not found");
const LIMIT_REQ: Kind = Kind::Many("LimitReqNotFound", "limit_req not found");
const UPSTREAM: Kind = Kind::Many("UpstreamNotFound", "upstream not found");
const KEYVAL: Kind = Kind::Many("KeyvalNotFound", "keyval not found");
const SLAB: Kind = Kind::Many("SlabNotFound", "slab not found");
const CACHE: Kind = Kind::Many("CacheNotFound", "cache not found");
const RESOLVER: Kind = Kind::Many("ResolverZoneNotFound", "resolver zone not found");
const ANALYTICS: Kind = Kind::Many("AnalyticsZoneNotFound", "analytics zone not found");
const SHIP: Kind = Kind::Many("ShipNotFound", "receiver not found");
const WORKER: Kind = Kind::Many("WorkerNotFound", "worker not found");

/// All of them, in the order in which they are listed.
pub(crate) const PLACES: &[Place] = &[
    place("nginx", 1, Kind::One, false),
    place("processes", 1, Kind::One, true),
    place("connections", 1, Kind::One, true),
    place("slabs", 1, SLAB, true),
    place("http", 1, Kind::Folder, false),
    place("http/requests", 1, Kind::One, true),
    place("http/server_zones", 1, SERVER_ZONE, true),
    place("http/location_zones", 5, LOCATION_ZONE, true),
    place("http/caches", 1, CACHE, true),
    place("http/limit_conns", 6, LIMIT_CONN, true),
    place("http/limit_reqs", 6, LIMIT_REQ, true),
    place("http/upstreams", 1, UPSTREAM, true),
    place("http/keyvals", 1, KEYVAL, false),
    place("http/analytics_zones", 9, ANALYTICS, true),
    place("stream", 1, Kind::Folder, false),
    place("stream/server_zones", 1, SERVER_ZONE, true),
    place("stream/limit_conns", 6, LIMIT_CONN, true),
    place("stream/upstreams", 1, UPSTREAM, true),
    place("stream/keyvals", 2, KEYVAL, false),
    place("resolvers", 5, RESOLVER, true),
    place("ssl", 1, Kind::One, true),
    place("workers", 9, WORKER, true),
    place("ship", 9, SHIP, false),
    // All of them in one document, with what it takes to add up those of several servers.
    place("figures", 9, Kind::One, false),
];

/// Figures that came later than what they are part of.
const LATER: &[(&str, u8)] = &[("response_time_hist", 9), ("ssl", 8), ("codes", 7)];

/// Whether figures of that name are in a version.
pub(crate) fn has(version: u8, name: &str) -> bool {
    LATER.iter().all(|(later, since)| *later != name || version >= *since)
}

/// What a request's path means.
#[derive(Debug)]
pub(crate) enum Target<'a> {
    Versions,
    /// The names of what is below; the whole for an empty path.
    Folder(&'static str),
    All(&'static Place),
    /// One of the many, by its name, which may have any characters.
    Named(&'static Place, &'a str),
}

/// The version that a path names, whatever stands behind it; 0 for none.
pub(crate) fn version(path: &str) -> u8 {
    let path = path.strip_prefix('/').unwrap_or(path);
    let first = path.split('/').next().and_then(|v| v.parse().ok());
    first.filter(|v| (1..=VERSION).contains(v)).unwrap_or(0)
}

/// Reads the path behind the location's name: `/9/http/server_zones/a.test`.
pub(crate) fn target(path: &str) -> Outcome<(u8, Target<'_>)> {
    let path = path.strip_prefix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok((0, Target::Versions));
    }
    let (version, rest) = path.split_once('/').unwrap_or((path, ""));
    let unknown = || Refusal::new(404, "UnknownVersion", "unknown version");
    let version = version.parse().ok().filter(|v| (1..=VERSION).contains(v)).ok_or_else(unknown)?;
    if rest.is_empty() {
        return Ok((version, Target::Folder("")));
    }
    let there = |p: &&Place| p.since <= version;
    let bare = rest.strip_suffix('/').unwrap_or(rest);
    for place in PLACES.iter().filter(there) {
        if place.path == bare {
            let whole = match place.kind {
                Kind::Folder => Target::Folder(place.path),
                _ => Target::All(place),
            };
            return Ok((version, whole));
        }
        let name = rest.strip_prefix(place.path).and_then(|rest| rest.strip_prefix('/'));
        if let (Some(name), Kind::Many(..)) = (name, place.kind) {
            return Ok((version, Target::Named(place, name)));
        }
    }
    Err(Refusal::path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &str) -> String {
        match target(path) {
            Ok((v, Target::Versions)) => format!("{v}"),
            Ok((v, Target::Folder(at))) => format!("{v} folder {at}"),
            Ok((v, Target::All(p))) => format!("{v} {}", p.path),
            Ok((v, Target::Named(p, name))) => format!("{v} {} of {name}", p.path),
            Err(e) => e.code.to_string(),
        }
    }

    #[test]
    fn paths_lead_to_places() {
        for (path, expected) in [
            ("", "0"),
            ("/", "0"),
            ("/9", "9 folder "),
            ("/9/", "9 folder "),
            ("/0/", "UnknownVersion"),
            ("/10/", "UnknownVersion"),
            ("/x", "UnknownVersion"),
            ("/1/nginx", "1 nginx"),
            ("/1/nginx/", "1 nginx"),
            ("/1/nginx/x", "PathNotFound"),
            ("/3/http", "3 folder http"),
            ("/3/http/server_zones/", "3 http/server_zones"),
            ("/9/http/server_zones/unix:/a/b", "9 http/server_zones of unix:/a/b"),
            ("/9/stream/upstreams/u/servers/3", "9 stream/upstreams of u/servers/3"),
            ("/4/http/location_zones/", "PathNotFound"),
            ("/5/http/location_zones/", "5 http/location_zones"),
            ("/8/workers/", "PathNotFound"),
            ("/9/workers/0", "9 workers of 0"),
            ("/9/license", "PathNotFound"),
            ("/9/httpx", "PathNotFound"),
        ] {
            assert_eq!(told(path), expected, "{path}");
        }
    }
}
