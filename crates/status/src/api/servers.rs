//! `…/upstreams/NAME/servers`: the servers of an upstream are listed, put, changed and taken away.

use super::input::{self, Input};
use super::refusal::{Outcome, Refusal};
use weir_base::units;
use weir_core::figures::{Figure, Figures};
use weir_core::generation::Generation;
use weir_http::Request;
use weir_upstream::editing::{Change, Editable, Fault, Set};
use weir_upstream::UpstreamMain;

/// Which protocol's upstreams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Block {
    Http,
    Stream,
}

impl Block {
    pub(super) fn of(path: &str) -> Block {
        if path.starts_with("stream") {
            Block::Stream
        } else {
            Block::Http
        }
    }

    fn main(self, gen: &Generation) -> Option<&UpstreamMain> {
        let (_, main) = match self {
            Block::Http => weir_http::module::reports(gen),
            Block::Stream => weir_stream::reports(gen),
        };
        main.map(|slots| slots.get::<UpstreamMain>())
    }

    fn add(self, to: &Editable, change: &Change) -> Result<Set, Fault> {
        match self {
            Block::Http => to.add::<Request>(change),
            Block::Stream => to.add::<weir_stream::Session>(change),
        }
    }

    fn change(self, of: &Editable, id: u64, change: &Change) -> Result<Set, Fault> {
        match self {
            Block::Http => of.change::<Request>(id, change),
            Block::Stream => of.change::<weir_stream::Session>(id, change),
        }
    }
}

/// A name behind `…/upstreams/` that goes on to servers: the upstream's, and the number of one of them.
pub(super) fn split(name: &str) -> Option<(&str, Option<&str>)> {
    if let Some(upstream) = name.strip_suffix("/servers").or_else(|| name.strip_suffix("/servers/"))
    {
        return Some((upstream, None));
    }
    let (upstream, id) = name.strip_suffix('/').unwrap_or(name).rsplit_once('/')?;
    Some((upstream.strip_suffix("/servers")?, Some(id)))
}

/// The servers of an upstream, or one of them, for a protocol and a version of the API.
pub(super) struct Servers {
    pub block: Block,
    pub version: u8,
    pub upstream: Editable,
    pub id: Option<u64>,
    name: String,
}

impl Servers {
    pub(super) fn find(
        gen: &Generation,
        block: Block,
        version: u8,
        name: &str,
        id: Option<&str>,
    ) -> Outcome<Servers> {
        let none = || refusal(&Fault::NoUpstream, name, None);
        let main = block.main(gen).ok_or_else(none)?;
        let upstream = main.editable(name.as_bytes()).map_err(|e| refusal(&e, name, None))?;
        let bad = |_| Refusal::format("UpstreamBadServerId", "invalid server ID");
        let id = id.map(|id| id.parse().map_err(bad)).transpose()?;
        Ok(Servers { block, version, upstream, id, name: name.to_string() })
    }

    fn failed(&self, fault: &Fault) -> Refusal {
        refusal(fault, &self.name, self.id)
    }

    pub(super) fn show(&self) -> Outcome<Figure> {
        match self.id {
            Some(id) => {
                let set = self.upstream.server(id).map_err(|e| self.failed(&e))?;
                Ok(self.figure(&set))
            }
            None => Ok(self.all(&self.upstream.servers())),
        }
    }

    fn all(&self, sets: &[Set]) -> Figure {
        Figure::List(sets.iter().map(|set| self.figure(set)).collect())
    }

    fn figure(&self, set: &Set) -> Figure {
        let (peer, mut f) = (&set.peer, Figures::default());
        f.put("id", set.id);
        f.put("server", &*peer.name);
        if let Some(service) = &set.service {
            f.put("service", service.as_str());
        }
        f.put("weight", peer.weight.unsigned_abs());
        f.put_all(&[("max_conns", peer.max_conns.into()), ("max_fails", peer.max_fails.into())]);
        f.put("fail_timeout", format!("{}s", peer.fail_timeout_secs));
        f.put("slow_start", format!("{}s", peer.slow_start_secs));
        if self.block == Block::Http {
            f.put("route", &set.route[..]);
        }
        f.put("backup", set.backup);
        f.put("down", peer.down && !peer.draining);
        if peer.draining && self.version >= 2 {
            f.put("drain", true);
        }
        if let Some((host, id)) = &set.host {
            // A text, as NGINX Plus's description of its API has it.
            f.put("parent", id.to_string());
            f.put("host", host.as_str());
        }
        f.into()
    }

    /// `POST`
    pub(super) fn add(&self, body: &[u8]) -> Outcome<Figure> {
        let change = self.read(body, true)?;
        if change.server.is_none() {
            let text = "missing \"server\" argument";
            return Err(Refusal::format("UpstreamConfFormatError", text));
        }
        let set = self.block.add(&self.upstream, &change).map_err(|e| self.failed(&e))?;
        Ok(self.figure(&set))
    }

    /// `PATCH`
    pub(super) fn change(&self, id: u64, body: &[u8]) -> Outcome<Figure> {
        let change = self.read(body, false)?;
        let set = self.block.change(&self.upstream, id, &change).map_err(|e| self.failed(&e))?;
        Ok(self.figure(&set))
    }

    /// `DELETE`
    pub(super) fn remove(&self, id: u64) -> Outcome<Figure> {
        let left = self.upstream.remove(id).map_err(|e| self.failed(&e))?;
        Ok(self.all(&left))
    }

    /// Whether the server is one for when the others fail, or not, as `is` says. Of one that is not there, that is
    /// what is to be said.
    fn is_backup(&self, is: bool) -> bool {
        self.id.is_some_and(|id| self.upstream.server(id).map_or(true, |set| set.backup == is))
    }

    fn is_of_a_name(&self) -> bool {
        let set = self.id.and_then(|id| self.upstream.server(id).ok());
        set.is_some_and(|set| set.host.is_some())
    }

    fn read(&self, body: &[u8], is_new: bool) -> Outcome<Change> {
        let mut change = Change::default();
        let format = |text: String| Refusal::format("UpstreamConfFormatError", text);
        let twice = |name: &str| format(format!("\"{name}\" is there twice"));
        for (name, value) in input::object(body, twice)? {
            let bad = |code| Refusal::format(code, format!("invalid \"{name}\""));
            let wrong = || format(format!("invalid \"{name}\" value"));
            if value.is_nested() {
                return Err(format("nested object or list".to_string()));
            }
            let number =
                |code| value.number().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| bad(code));
            let secs = |code| seconds(&value).ok_or_else(|| bad(code));
            match &*name {
                "server" => change.server = Some(value.text().ok_or_else(wrong)?),
                "weight" => {
                    let weight = number("UpstreamBadWeight")?;
                    change.weight = Some(weight);
                    if weight == 0 {
                        return Err(bad("UpstreamBadWeight"));
                    }
                }
                "max_conns" => change.max_conns = Some(number("UpstreamBadMaxConns")?),
                "max_fails" => change.max_fails = Some(number("UpstreamBadMaxFails")?),
                "fail_timeout" => change.fail_timeout = Some(secs("UpstreamBadFailTimeout")?),
                "slow_start" => change.slow_start = Some(secs("UpstreamBadSlowStart")?),
                "route" if self.block == Block::Http => {
                    change.route = Some(value.text().ok_or_else(wrong)?);
                }
                "backup" if is_new => change.backup = Some(value.flag().ok_or_else(wrong)?),
                "down" => change.down = Some(value.flag().ok_or_else(wrong)?),
                "drain" if self.block == Block::Http && self.version >= 2 => {
                    change.drain = Some(value.flag().ok_or_else(wrong)?);
                }
                // Clients that read a server, change one value and write all back say what it is already.
                "backup" if value.flag().is_some_and(|is| self.is_backup(is)) => {}
                "id" if self.id.is_some() && value.number() == self.id => {}
                // Of one that may not be changed at all, which is what is to be said.
                "parent" | "host" if self.is_of_a_name() => {}
                "service" => change.service = Some(value.text().ok_or_else(wrong)?),
                "backup" | "id" | "parent" | "host" => {
                    return Err(format(format!("\"{name}\" cannot be changed")))
                }
                "resolve" => {
                    let text = "unknown parameter \"resolve\": a name is asked for without it";
                    return Err(format(text.to_string()));
                }
                _ => return Err(format(format!("unknown parameter \"{name}\""))),
            }
        }
        Ok(change)
    }
}

/// A number is bounded as a text is: what is taken is read from the state file again.
fn seconds(value: &Input) -> Option<u64> {
    let text = value.text().or_else(|| value.number().map(|n| n.to_string()))?;
    units::parse_sec(text.as_bytes())
}

fn refusal(fault: &Fault, name: &str, id: Option<u64>) -> Refusal {
    let id = id.unwrap_or(0);
    match fault {
        Fault::NoUpstream => Refusal::new(404, "UpstreamNotFound", "upstream not found"),
        Fault::Static => Refusal::new(400, "UpstreamStatic", "upstream is static"),
        Fault::NoServer => {
            let text = format!("server with ID \"{id}\" does not exist");
            Refusal::new(404, "UpstreamServerNotFound", text)
        }
        Fault::Immutable => {
            let text = format!(
                "server \"{id}\" is immutable: one that comes from a name is changed and deleted by its parent, and one \
                 that is to be another is put anew"
            );
            Refusal::new(400, "UpstreamServerImmutable", text)
        }
        Fault::NoBackup => {
            Refusal::new(400, "UpstreamNoBackup", format!("upstream \"{name}\" has no backup"))
        }
        Fault::NoSlowStart => {
            let text = "the balancing method does not support \"slow_start\"";
            Refusal::new(400, "UpstreamBadSlowStart", text)
        }
        Fault::Address(text) => Refusal::new(400, "UpstreamBadAddress", text.clone()),
        Fault::Name(host) => {
            let text = format!(
                "no resolver defined to resolve {host}: write \"resolver\" into the upstream or the block around it, or send an address"
            );
            Refusal::new(400, "UpstreamConfNoResolver", text)
        }
        Fault::Service => {
            Refusal::new(400, "UpstreamBadService", "service is empty, or no service")
        }
        Fault::Route => Refusal::new(400, "UpstreamBadRoute", "route is too long, or no route"),
        Fault::Full => {
            let text = format!("upstream \"{name}\" memory exhausted");
            Refusal::new(400, "UpstreamOutOfMemory", text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_where_servers_begin() {
        for (name, expected) in [
            ("u/servers", Some(("u", None))),
            ("u/servers/", Some(("u", None))),
            ("u/servers/3", Some(("u", Some("3")))),
            ("u/servers/x/", Some(("u", Some("x")))),
            ("a/b/servers/3", Some(("a/b", Some("3")))),
            ("u", None),
            ("u/", None),
            ("u/x/3", None),
        ] {
            assert_eq!(split(name), expected, "{name}");
        }
    }
}
