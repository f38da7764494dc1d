//! What of a configuration the machine has to bear: figures out of its directives as they stand.

use crate::args::{first, is_on, number, parameter, zone};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use weir_base::units;
use weir_conf::Directive;

/// Of each worker without `worker_connections`.
const CONNECTIONS: u64 = 512;
/// Of a socket without `backlog=`.
const BACKLOG: u64 = 511;
/// Idle connections to the servers of an upstream without `keepalive`.
const KEEPALIVE: u64 = 32;
/// What a cache without `memory=` keeps in memory.
pub const CACHE_MEMORY_BYTES: u64 = 32 << 20;

/// Of a queue without `size=`.
const SHIP_QUEUE_BYTES: u64 = 1 << 30;

/// Where relative names begin, and what is there if nothing is said.
#[derive(Clone, Debug, Default)]
pub struct Places {
    pub prefix: PathBuf,
    /// Of certificates and other files of the configuration.
    pub conf_prefix: PathBuf,
    pub pid: Option<PathBuf>,
    pub error_log: PathBuf,
    pub access_log: PathBuf,
    /// Where bodies of requests and answers wait, for all kinds.
    pub temp: Vec<(String, PathBuf)>,
}

/// A socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// As it is written.
    pub text: String,
    /// `None` for a path.
    pub port: Option<u16>,
    pub backlog: u64,
    pub reuseport: bool,
    pub udp: bool,
}

/// A group of servers, or one that stands alone in a `…_pass`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upstream {
    pub name: String,
    /// Those that are reached by an address of the network.
    pub servers: u64,
    /// Idle connections that a worker keeps.
    pub keepalive: u64,
    /// All of it is on this machine.
    pub is_local: bool,
}

/// What a file or directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Log,
    Cache,
    Temporary,
}

/// A place that is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub what: Use,
    pub path: PathBuf,
}

/// A cache on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    pub path: PathBuf,
    /// Of `keys_zone`.
    pub zone_bytes: u64,
    /// What is kept in memory besides.
    pub memory_bytes: u64,
    pub max_bytes: Option<u64>,
    pub min_free_bytes: u64,
    /// Where answers wait until they are whole, if not in the cache itself.
    pub temp: Option<PathBuf>,
}

/// A queue of a receiver of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ship {
    pub name: String,
    pub dir: PathBuf,
    pub max_bytes: u64,
}

/// A server that speaks TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsServer {
    /// Without patterns of regular expressions.
    pub names: Vec<String>,
    pub certificates: Vec<PathBuf>,
    pub keys: Vec<PathBuf>,
    pub ticket_keys: Vec<PathBuf>,
    /// `ssl_session_cache`, as it is written.
    pub session_cache: Option<String>,
    pub tickets: bool,
    pub stapling: bool,
    /// It asks nobody for what it staples: there is a file.
    pub has_staple_file: bool,
    pub has_resolver: bool,
}

/// CPUs of the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affinity {
    Auto,
    Masks(Vec<u128>),
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Conf {
    /// `None` is auto.
    pub workers: Option<u64>,
    pub affinity: Option<Affinity>,
    pub connections: u64,
    pub rlimit_nofile: Option<u64>,
    pub pid: Option<PathBuf>,
    pub user: Option<String>,
    pub listens: Vec<Listen>,
    pub upstreams: Vec<Upstream>,
    /// Clients' requests or sessions are passed on.
    pub passes: bool,
    /// Files kept open (`open_file_cache`).
    pub open_files: u64,
    pub written: Vec<Written>,
    pub caches: Vec<Cache>,
    /// Shared memory by name, without that of caches.
    pub zones: Vec<(String, u64)>,
    /// Queues of `ship` blocks.
    pub ships: Vec<Ship>,
    pub tls: Vec<TlsServer>,
    /// Certificates that are shown to servers.
    pub certificates: Vec<PathBuf>,
}

/// What is inherited from the outer levels: the last that was said of each.
type Said<'a> = HashMap<&'static str, Vec<&'a Directive>>;

/// Directives that blocks inherit and that matter here.
const INHERITED: &[&str] = &[
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_session_cache",
    "ssl_session_tickets",
    "ssl_session_ticket_key",
    "ssl_stapling",
    "ssl_stapling_file",
    "resolver",
    "proxy_temp_path",
    "fastcgi_temp_path",
    "uwsgi_temp_path",
    "scgi_temp_path",
    "client_body_temp_path",
];

const PASSES: &[&str] = &[
    "proxy_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "grpc_pass",
    "memcached_pass",
    "memc_pass",
    "redis_pass",
    "redis2_pass",
];

impl Conf {
    /// Of directives that have been read.
    pub fn of(directives: &[Directive], places: &Places) -> Conf {
        let mut reader = Reader {
            conf: Conf::default(),
            places,
            temps: BTreeMap::new(),
            has_error_log: false,
            has_access_log: false,
        };
        reader.conf.workers = Some(1);
        reader.conf.connections = CONNECTIONS;
        reader.conf.pid = places.pid.clone();
        reader.level(directives, &Said::new());
        reader.finish()
    }

    /// How many workers there are on a machine with so many processors.
    pub fn workers_of(&self, cpus: usize) -> u64 {
        self.workers.unwrap_or(cpus as u64).max(1)
    }

    /// Descriptors that a worker may come to need.
    pub fn files_of_worker(&self) -> u64 {
        /// The event loop's own, timers, wakers, pipes.
        const OWN: u64 = 16;
        let to_servers = if self.passes { self.connections } else { 0 };
        let logs = self.written.iter().filter(|w| w.what == Use::Log).count() as u64;
        self.connections
            .saturating_add(to_servers)
            .saturating_add(self.idle())
            .saturating_add(self.open_files)
            .saturating_add(OWN + self.listens.len() as u64 + logs)
    }

    /// Idle connections to servers that a worker may keep.
    pub fn idle(&self) -> u64 {
        self.upstreams.iter().fold(0, |sum, u| sum.saturating_add(u.keepalive))
    }

    /// Memory that it asks for whatever comes.
    pub fn memory_bytes(&self) -> u64 {
        let caches = self.caches.iter().map(|c| c.zone_bytes.saturating_add(c.memory_bytes));
        caches.chain(self.zones.iter().map(|z| z.1)).fold(0, u64::saturating_add)
    }
}

struct Reader<'a> {
    conf: Conf,
    places: &'a Places,
    /// Directories of temporary files, each once.
    temps: BTreeMap<PathBuf, ()>,
    has_error_log: bool,
    has_access_log: bool,
}

impl<'a> Reader<'a> {
    fn level(&mut self, all: &'a [Directive], outer: &Said<'a>) {
        let mut said = outer.clone();
        for name in INHERITED {
            let own: Vec<&Directive> = all.iter().filter(|d| d.name == *name).collect();
            if !own.is_empty() {
                said.insert(name, own);
            }
        }
        for d in all {
            self.directive(d, &said);
            match &*d.name.to_str() {
                "upstream" => self.upstream(d),
                "ship" => self.ship(d),
                "server" if d.is_block() => {
                    self.level(d.children(), &said);
                    self.tls_server(d, &said);
                }
                // What stands in these is no directive.
                "map" | "geo" | "types" | "split_clients" | "charset_map" => {}
                _ => self.level(d.children(), &said),
            }
        }
    }

    fn ship(&mut self, d: &Directive) {
        let queue = d.children().iter().find(|d| d.name == *"queue");
        let Some((queue, dir)) = queue.and_then(|q| Some((q, first(q)?))) else { return };
        let size = parameter(queue, "size").and_then(units::parse_offset);
        self.conf.ships.push(Ship {
            name: first(d).unwrap_or_default(),
            dir: self.full(&dir),
            max_bytes: size.unwrap_or(SHIP_QUEUE_BYTES),
        });
    }

    fn full(&self, word: &str) -> PathBuf {
        weir_runtime::paths::join(&self.places.prefix, word)
    }

    fn directive(&mut self, d: &Directive, said: &Said<'a>) {
        let name = d.name.to_str();
        let text = first(d).unwrap_or_default();
        match &*name {
            "worker_processes" => self.conf.workers = number(d),
            "worker_cpu_affinity" => self.conf.affinity = affinity(d),
            "worker_connections" => {
                self.conf.connections = number(d).unwrap_or(CONNECTIONS);
            }
            "worker_rlimit_nofile" => self.conf.rlimit_nofile = number(d),
            "pid" => self.conf.pid = Some(self.full(&text)),
            "user" => self.conf.user = Some(text),
            "listen" => self.conf.listens.push(listen(d)),
            "open_file_cache" => {
                let max = parameter(d, "max").and_then(units::parse_int).unwrap_or(0);
                self.conf.open_files = self.conf.open_files.max(max);
            }
            "access_log" => {
                self.has_access_log = true;
                self.log(&text);
            }
            "error_log" => {
                self.has_error_log = true;
                self.log(&text);
            }
            n if n.ends_with("_cache_path") => self.cache(d, n, said),
            n if n.ends_with("_temp_path") => {
                let path = self.full(&text);
                self.temps.insert(path, ());
            }
            n if n.ends_with("_ssl_certificate") && !text.contains('$') && !text.is_empty() => {
                self.conf.certificates.push(self.places.conf_prefix.join(&text));
            }
            n if PASSES.contains(&n) => self.pass(n, &text),
            n if n.ends_with("_zone") || n == "zone" => self.zone(d, n),
            _ => {}
        }
    }

    fn log(&mut self, path: &str) {
        let is_file = !["off", "stderr", ""].contains(&path)
            && !["syslog:", "memory:", "|", "pipe:"].iter().any(|p| path.starts_with(p))
            && !path.contains('$')
            && !path.starts_with("/dev/");
        if is_file {
            self.written(Use::Log, self.full(path));
        }
    }

    fn written(&mut self, what: Use, path: PathBuf) {
        let new = Written { what, path };
        if !self.conf.written.contains(&new) {
            self.conf.written.push(new);
        }
    }

    fn cache(&mut self, d: &Directive, name: &str, said: &Said<'a>) {
        let Some(dir) = first(d) else { return };
        let size = |n: &str| parameter(d, n).and_then(units::parse_offset);
        let is_direct = parameter(d, "use_temp_path") == Some(b"off");
        let family = name.trim_end_matches("_cache_path");
        let temp = (!is_direct).then(|| self.temp_of(family, said)).flatten();
        let path = self.full(&dir);
        self.written(Use::Cache, path.clone());
        self.conf.caches.push(Cache {
            path,
            zone_bytes: parameter(d, "keys_zone").and_then(zone).map_or(0, |z| z.1),
            memory_bytes: size("memory").unwrap_or(CACHE_MEMORY_BYTES),
            max_bytes: size("max_size"),
            min_free_bytes: size("min_free").unwrap_or(0),
            temp,
        });
    }

    /// Where a family of backends has its temporary files, by what is said at this level.
    fn temp_of(&self, family: &str, said: &Said<'a>) -> Option<PathBuf> {
        let name = format!("{family}_temp_path");
        let told = said.iter().find(|(n, _)| **n == name).and_then(|(_, d)| first(d.last()?));
        let by_default = || self.places.temp.iter().find(|(n, _)| n == family);
        told.map(|t| self.full(&t)).or_else(|| by_default().map(|(_, p)| p.clone()))
    }

    fn pass(&mut self, name: &str, to: &str) {
        self.conf.passes = true;
        let host = to.split("://").last().unwrap_or(to);
        let host = host.split('/').next().unwrap_or(host);
        let is_known = self.conf.upstreams.iter().any(|u| u.name == host);
        if host.contains('$') || is_known || to.contains("unix:") || host.is_empty() {
            return;
        }
        // Whether it is a group is known when all has been read.
        let keepalive = if name == "proxy_pass" { KEEPALIVE } else { 0 };
        let is_local = is_loopback(host);
        let name = host.to_owned();
        self.conf.upstreams.push(Upstream { name, servers: 1, keepalive, is_local });
    }

    fn upstream(&mut self, d: &Directive) {
        let mut made = Upstream {
            name: first(d).unwrap_or_default(),
            keepalive: KEEPALIVE,
            is_local: true,
            ..Upstream::default()
        };
        for inner in d.children() {
            match (&*inner.name.to_str(), first(inner)) {
                ("server", Some(host)) if !host.starts_with("unix:") => {
                    made.servers += 1;
                    made.is_local &= is_loopback(&host);
                }
                ("keepalive", _) => made.keepalive = number(inner).unwrap_or(KEEPALIVE),
                ("zone", _) => self.zone(inner, "zone"),
                _ => {}
            }
        }
        // The name may have been used above the block.
        self.conf.upstreams.retain(|u| u.name != made.name);
        self.conf.upstreams.push(made);
    }

    fn zone(&mut self, d: &Directive, name: &str) {
        let found = match name {
            "zone" => first(d).zip(d.word(1).and_then(|w| units::parse_size(w.as_bytes()))),
            _ => d.args.iter().find_map(|w| zone(w.as_bytes().strip_prefix(b"zone=")?)),
        };
        self.conf.zones.extend(found);
    }

    fn tls_server(&mut self, d: &Directive, outer: &Said<'a>) {
        let of_server = |name: &str| {
            let own: Vec<&Directive> = d.children().iter().filter(|c| c.name == *name).collect();
            match own.is_empty() {
                true => outer.get(name).cloned().unwrap_or_default(),
                false => own,
            }
        };
        let is_tls = |l: &&Directive| {
            l.name == "listen" && l.args.iter().any(|w| *w == "ssl" || *w == "quic")
        };
        if !d.children().iter().any(|c| is_tls(&c)) {
            return;
        }
        let files = |name: &str, places: &Path| -> Vec<PathBuf> {
            let words = of_server(name).into_iter().filter_map(first);
            let is_file = |w: &String| !w.contains('$') && !w.contains(':');
            words.filter(is_file).map(|w| places.join(w)).collect()
        };
        let names = d.children().iter().filter(|c| c.name == "server_name");
        let names = names.flat_map(|c| &c.args).map(|w| w.to_str().to_lowercase());
        let flag = |name: &str, or: bool| of_server(name).last().map_or(or, |d| is_on(d));
        let here = &self.places.conf_prefix;
        let server = TlsServer {
            names: names.filter(|n| !n.starts_with('~') && !n.is_empty() && n != "_").collect(),
            certificates: files("ssl_certificate", here),
            keys: files("ssl_certificate_key", here),
            ticket_keys: files("ssl_session_ticket_key", here),
            session_cache: of_server("ssl_session_cache").last().map(|d| {
                d.args.iter().map(|w| w.to_str().into_owned()).collect::<Vec<_>>().join(" ")
            }),
            tickets: flag("ssl_session_tickets", true),
            stapling: flag("ssl_stapling", false),
            has_staple_file: !of_server("ssl_stapling_file").is_empty(),
            has_resolver: !of_server("resolver").is_empty(),
        };
        for part in server.session_cache.iter().flat_map(|c| c.split(' ')) {
            let shared = part.strip_prefix("shared:").and_then(|s| zone(s.as_bytes()));
            let is_new = |z: &(String, u64)| !self.conf.zones.contains(z);
            self.conf.zones.extend(shared.filter(is_new));
        }
        self.conf.tls.push(server);
    }

    fn finish(mut self) -> Conf {
        let by_default = [
            (self.has_error_log, &self.places.error_log),
            (self.has_access_log, &self.places.access_log),
        ];
        for (is_said, path) in by_default {
            if !is_said && path.as_os_str() != "stderr" && !path.as_os_str().is_empty() {
                self.written(Use::Log, path.clone());
            }
        }
        let wants_defaults = self.temps.is_empty() && !self.conf.listens.is_empty();
        let known = self.places.temp.iter().map(|(_, path)| path.clone());
        let mut temps: Vec<PathBuf> = std::mem::take(&mut self.temps).into_keys().collect();
        temps.extend(known.filter(|_| wants_defaults).take(1));
        temps.into_iter().for_each(|path| self.written(Use::Temporary, path));
        self.conf
    }
}

fn affinity(d: &Directive) -> Option<Affinity> {
    if d.word(0)? == "auto" {
        return Some(Affinity::Auto);
    }
    let mask = |w: &weir_conf::Word| u128::from_str_radix(&w.to_str(), 2).ok();
    Some(Affinity::Masks(d.args.iter().filter_map(mask).collect()))
}

fn is_loopback(host: &str) -> bool {
    ["127.", "localhost", "[::1]", "unix:"].iter().any(|start| host.starts_with(start))
}

fn listen(d: &Directive) -> Listen {
    let text = first(d).unwrap_or_default();
    let has = |word: &str| d.args.iter().any(|w| *w == *word);
    let behind = text.rsplit(':').next().unwrap_or_default();
    let is_path = text.starts_with("unix:");
    let number = behind.trim_end_matches(']').split('-').next().and_then(|n| n.parse().ok());
    let port = number.or(Some(80)).filter(|_| !is_path);
    let backlog = parameter(d, "backlog").and_then(units::parse_int).unwrap_or(BACKLOG);
    let udp = has("udp") || has("quic");
    Listen { text, port, backlog, reuseport: has("reuseport"), udp }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::conf;

    #[test]
    fn figures_of_a_configuration() {
        let c = conf(
            "worker_processes 4; worker_cpu_affinity 01 10; worker_rlimit_nofile 9; pid run/x.pid; \
             events { worker_connections 1000; } error_log /var/log/e.log; \
             http { limit_req_zone $a zone=r:10m rate=1r/s; access_log logs/a.log; resolver 127.0.0.53; \
               proxy_cache_path /cache keys_zone=c:1m memory=64m max_size=2g; \
               map $a $b { server 1; listen 2; } \
               upstream u { server 10.0.0.1; server 10.0.0.2:81; keepalive 7; zone uz 64k; } \
               ssl_certificate a.crt; \
               server { listen 80 backlog=4096 reuseport; listen [::]:8080; listen unix:/s; \
                 location / { proxy_pass http://u/x; } location /b { fastcgi_pass 127.0.0.1:9000; } } \
               server { listen 127.0.0.1:443 ssl; server_name A.example ~x _; ssl_stapling on; \
                 ssl_session_cache shared:s:5m; } }",
        );
        assert_eq!((c.workers, c.connections, c.rlimit_nofile), (Some(4), 1000, Some(9)));
        assert_eq!(c.affinity, Some(Affinity::Masks(vec![1, 2])));
        assert_eq!(c.pid, Some(PathBuf::from("/prefix/run/x.pid")));
        let ports: Vec<_> = c.listens.iter().map(|l| l.port).collect();
        assert_eq!(ports, [Some(80), Some(8080), None, Some(443)]);
        assert_eq!((c.listens[0].backlog, c.listens[0].reuseport), (4096, true));
        assert_eq!(c.listens[1].backlog, 511);
        assert!(c.passes);
        let u = Upstream { name: "u".into(), servers: 2, keepalive: 7, is_local: false };
        assert_eq!(c.upstreams[0], u);
        assert_eq!((c.upstreams.len(), c.upstreams[1].is_local), (2, true));
        assert_eq!(c.memory_bytes(), (10 << 20) + (64 << 10) + (5 << 20) + (65 << 20));
        assert_eq!(c.caches[0].temp, Some(PathBuf::from("/prefix/proxy_temp")));
        assert_eq!(c.caches[0].max_bytes, Some(2 << 30));
        let tls = &c.tls[0];
        assert_eq!(tls.names, ["a.example"]);
        assert_eq!(tls.certificates, [PathBuf::from("/etc/weir/a.crt")]);
        assert!(tls.stapling && tls.has_resolver && tls.tickets && c.tls.len() == 1);
        assert_eq!(c.files_of_worker(), 2000 + 7 + 16 + 4 + 2);
        let logs: Vec<_> = c.written.iter().filter(|w| w.what == Use::Log).collect();
        assert_eq!(logs.len(), 2);
    }

    #[test]
    fn without_a_word() {
        let c = conf("events {}");
        assert_eq!((c.workers, c.connections), (Some(1), 512));
        assert_eq!((c.workers_of(3), c.passes), (1, false));
        assert_eq!(conf("worker_processes auto;").workers_of(3), 3);
    }
}
