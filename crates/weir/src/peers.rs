//! Other Weirs that a dashboard shows: their APIs are asked by the client that receivers of events have.

use std::sync::Arc;
use weir_ship::http::{Http, HttpConf};
use weir_ship::line::tls::Tls;
use weir_status::machines::{Ask, PeerConf};

/// The place of an API that has all figures at once.
const FIGURES: &str = "/9/figures";

pub fn dial(conf: &PeerConf) -> Result<Ask, String> {
    let tls = conf.roots.clone().map(Tls::by_roots).transpose()?;
    let conf = HttpConf::of_url(&conf.url, &conf.fields, conf.timeout, tls)
        .ok_or_else(|| format!("\"{}\" is no address of an API", conf.url))?;
    let mut http = Http::new(Arc::new(conf.for_figures()), Arc::default());
    Ok(Box::new(move || {
        let answer = http.send("GET", FIGURES, "", "", b"")?;
        match answer.status {
            200 => Ok(answer.body),
            401 => Err("it wants a name and a password (401): user= and password_file=".into()),
            403 => Err("it does not let this server ask (403)".into()),
            404 => Err("there is no API that has all figures (404)".into()),
            status => Err(format!("it answers with {status}")),
        }
    }))
}
