//! What Elasticsearch or OpenSearch needs to make sense of events, and dashboards to look at them: files of
//! `packaging/ship`.

use crate::elastic::refusal;
use crate::http::Http;

/// A name, and what it is.
const TEMPLATES: &[(&str, &str)] = &[
    ("weir-logs", include_str!("../../../packaging/ship/logs-template.json")),
    ("weir-metrics", include_str!("../../../packaging/ship/metrics-template.json")),
];
/// Saved objects, of which each line is one.
const DASHBOARDS: &str = include_str!("../../../packaging/ship/dashboards.ndjson");
const BOUNDARY: &str = "weir-saved-objects-5f2b7c1d";

/// The template that Elastic's own integration has for nginx's logs.
const THEIRS: &str = "logs-nginx.access";

/// Puts the templates of the data streams of a namespace in place; those that are there are replaced. Other namespaces
/// stay whose they are: of templates that match, the one of the highest priority alone is used.
///
/// # Errors
///
/// The receiver cannot be reached, or refuses.
pub fn templates(http: &mut Http, namespace: &str) -> Result<String, String> {
    let mut done = String::new();
    for (name, text) in TEMPLATES {
        let (name, text) = of_namespace(name, text, namespace);
        let path = format!("/_index_template/{name}");
        let answer = http.send("PUT", &path, "application/json", "", text.as_bytes())?;
        if !answer.is_good() {
            return Err(refusal(&http.whom(), &answer));
        }
        done += &format!("index template {name} is in place\n");
    }
    let path = format!("/_index_template/{THEIRS}");
    if http.send("GET", &path, "application/json", "", b"")?.is_good() {
        done += &format!(
            "note: there is an index template {THEIRS} (Elastic's integration of nginx). Streams of the namespace \
             \"{namespace}\" now follow weir's: where agents write to them too, give this receiver a \"namespace\" of its own\n"
        );
    }
    Ok(done)
}

fn of_namespace(name: &str, text: &str, namespace: &str) -> (String, String) {
    let name = match namespace {
        "default" => name.to_owned(),
        _ => format!("{name}-{namespace}"),
    };
    (name, text.replace("-*\"", &format!("-{namespace}\"")))
}

/// Puts the dashboards in place, at Kibana or OpenSearch Dashboards.
///
/// # Errors
///
/// As [`templates`].
pub fn dashboards(http: &mut Http, is_opensearch: bool) -> Result<String, String> {
    let body = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"weir.ndjson\"\r\n\
         Content-Type: application/ndjson\r\n\r\n{DASHBOARDS}\r\n--{BOUNDARY}--\r\n"
    );
    let field = if is_opensearch { "osd-xsrf: true\r\n" } else { "kbn-xsrf: true\r\n" };
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let path = "/api/saved_objects/_import?overwrite=true";
    let answer = http.send("POST", path, &kind, field, body.as_bytes())?;
    match answer.is_good() {
        true => Ok("dashboards are in place\n".into()),
        false => Err(refusal(&http.whom(), &answer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn files_are_what_receivers_read() {
        for (name, text) in TEMPLATES {
            let template: Value =
                serde_json::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(template["data_stream"].is_object(), "{name}");
            let (name, text) = of_namespace(name, text, "shop");
            assert!(name.ends_with("-shop"), "{name}");
            let template: Value = serde_json::from_str(&text).unwrap();
            let patterns = template["index_patterns"].as_array().unwrap();
            assert!(patterns.iter().all(|p| p.as_str().unwrap().ends_with("-shop")), "{text}");
        }
        let objects = DASHBOARDS.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        let objects: Vec<Value> = objects.collect();
        // What an object refers to is there.
        for object in &objects {
            for reference in object["references"].as_array().unwrap() {
                let is_it =
                    |o: &&Value| o["type"] == reference["type"] && o["id"] == reference["id"];
                assert!(objects.iter().any(|o| is_it(&o)), "{reference}");
            }
            for name in ["visState", "panelsJSON", "optionsJSON"] {
                if let Some(text) = object["attributes"][name].as_str() {
                    assert!(
                        serde_json::from_str::<Value>(text).is_ok(),
                        "{name} of {}",
                        object["id"]
                    );
                }
            }
        }
        assert!(objects.iter().any(|o| o["type"] == "dashboard"));
    }
}
