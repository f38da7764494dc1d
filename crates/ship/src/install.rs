//! What Elasticsearch or OpenSearch needs to make sense of events, and dashboards to look at them.

use crate::elastic::refusal;
use crate::http::Http;

/// A name, and what it is.
const TEMPLATES: &[(&str, &str)] = &[
    ("weir-logs", include_str!("../../../packaging/ship/logs-template.json")),
    ("weir-metrics", include_str!("../../../packaging/ship/metrics-template.json")),
];

/// Puts the templates in place; those that are there are replaced.
///
/// # Errors
///
/// The receiver cannot be reached, or refuses.
pub fn install(http: &mut Http, is_opensearch: bool) -> Result<String, String> {
    let mut done = String::new();
    for (name, text) in TEMPLATES {
        let path = format!("/_index_template/{name}");
        let answer = http.send("PUT", &path, "application/json", "", text.as_bytes())?;
        if !answer.is_good() {
            return Err(refusal(&http.whom(), &answer));
        }
        done += &format!("index template {name} is in place\n");
    }
    let dashboards = if is_opensearch { "opensearch-dashboards.ndjson" } else { "kibana.ndjson" };
    done += &format!("dashboards: import packaging/ship/{dashboards}, or give --dashboards URL\n");
    Ok(done)
}
