//! The arguments of a `resolver` directive.

use std::net::SocketAddr;
use weir_base::addr::{EndpointOptions, Host};
use weir_base::units;
use weir_runtime::listen::parse_endpoint;

const PORT: u16 = 53;

/// One argument's name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    Addr(SocketAddr),
    /// To be looked up by the system's resolver when the configuration is built.
    Name {
        name: String,
        port: u16,
        written: String,
    },
}

/// `resolver address … [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverConf {
    pub servers: Vec<Server>,
    /// `None`: as long as the answers say.
    pub valid_secs: Option<u64>,
    pub ipv4: bool,
    pub ipv6: bool,
    pub status_zone: Option<String>,
}

impl ResolverConf {
    /// The error is nginx's text.
    pub fn parse(args: &[&[u8]]) -> Result<ResolverConf, String> {
        let mut conf = ResolverConf {
            servers: Vec::new(),
            valid_secs: None,
            ipv4: true,
            ipv6: true,
            status_zone: None,
        };
        for arg in args {
            conf.argument(arg)?;
        }
        if !conf.ipv4 && !conf.ipv6 {
            return Err("\"ipv4\" and \"ipv6\" cannot both be \"off\"".to_owned());
        }
        match conf.servers.is_empty() {
            true => Err("no name servers defined".to_owned()),
            false => Ok(conf),
        }
    }

    fn argument(&mut self, arg: &[u8]) -> Result<(), String> {
        let shown = String::from_utf8_lossy(arg);
        let invalid = || format!("invalid parameter: {shown}");
        let on = |value: &[u8]| match value {
            b"on" => Ok(true),
            b"off" => Ok(false),
            _ => Err(invalid()),
        };
        if let Some(value) = arg.strip_prefix(b"valid=") {
            // As in nginx, 0 is as good as nothing.
            self.valid_secs = Some(units::parse_sec(value).ok_or_else(invalid)?).filter(|n| *n > 0);
        } else if let Some(value) = arg.strip_prefix(b"ipv4=") {
            self.ipv4 = on(value)?;
        } else if let Some(value) = arg.strip_prefix(b"ipv6=") {
            self.ipv6 = on(value)?;
        } else if let Some(value) = arg.strip_prefix(b"status_zone=") {
            if value.is_empty() {
                return Err(invalid());
            }
            self.status_zone = Some(String::from_utf8_lossy(value).into_owned());
        } else {
            self.servers.push(server(arg)?);
        }
        Ok(())
    }
}

fn server(arg: &[u8]) -> Result<Server, String> {
    let shown = String::from_utf8_lossy(arg);
    let url = parse_endpoint(arg, EndpointOptions::default())
        .map_err(|e| format!("{e} in resolver \"{shown}\""))?;
    let port = url.port.unwrap_or(PORT);
    match url.host {
        Host::V4(ip) => Ok(Server::Addr((ip, port).into())),
        Host::V6(ip) => Ok(Server::Addr((ip, port).into())),
        Host::Name(name) => {
            let name = String::from_utf8_lossy(name).into_owned();
            Ok(Server::Name { name, port, written: shown.into_owned() })
        }
        Host::Any | Host::Unix(_) => Err(format!("invalid host in resolver \"{shown}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let conf = ResolverConf::parse(&[b"127.0.0.1", b"[::1]:5353", b"valid=5m", b"ipv6=off"]);
        let conf = conf.unwrap();
        assert_eq!(conf.servers[0], Server::Addr(([127, 0, 0, 1], 53).into()));
        assert_eq!(conf.servers[1], Server::Addr("[::1]:5353".parse().unwrap()));
        assert_eq!((conf.valid_secs, conf.ipv4, conf.ipv6), (Some(300), true, false));
        let wrong = |args: &[&[u8]]| ResolverConf::parse(args).unwrap_err();
        assert_eq!(wrong(&[b"valid=x", b"a"]), "invalid parameter: valid=x");
        assert_eq!(wrong(&[b"valid=1s"]), "no name servers defined");
        let both = wrong(&[b"a", b"ipv4=off", b"ipv6=off"]);
        assert_eq!(both, "\"ipv4\" and \"ipv6\" cannot both be \"off\"");
    }
}
