use super::*;
use crate::fake::{self, answer};
use std::time::Duration;

fn pusher(port: u16) -> Box<dyn Client> {
    let labels = vec![
        ("job".to_owned(), Source::Text("weir".into())),
        ("code".to_owned(), Source::Field("code".into())),
    ];
    let fields = "X-Scope-OrgID: us\r\n".into();
    let http = Arc::new(HttpConf::fake(port));
    Loki { http, labels: labels.into(), fields }.client(fake::ground())
}

#[test]
fn whatever_loki_answers() {
    let behind = "entry ignored, reason: 'too far behind', total ignored: 1 out of 3";
    let (port, told) = fake::http(vec![
        answer("204 No Content", "", ""),
        answer("429 Too Many", "Retry-After: 3\r\n", "rate limit"),
        answer("503 Down", "", "gone"),
        "HTTP/1.1 204 No".into(),
        Vec::new(),
        answer("400 Bad", "", behind),
        answer("400 Bad", "", "no JSON"),
        answer("302 Go", "Location: /\r\n", ""),
    ]);
    let mut pusher = pusher(port);
    let texts = [b"{\"code\":200}".to_vec(), b"{\"code\":404}".to_vec(), b"{}".to_vec()];
    assert!(matches!(fake::send(&mut *pusher, &texts), Outcome::All));
    let request = told.recv().unwrap();
    assert!(request.head.starts_with("post /loki/api/v1/push http/1.1\r\n"), "{}", request.head);
    assert!(request.head.contains("\r\nx-scope-orgid: us\r\n"), "{}", request.head);
    assert!(request.head.contains("\r\ncontent-type: application/json\r\n"), "{}", request.head);
    let body = String::from_utf8(request.body).unwrap();
    assert_eq!(body.matches("\"stream\"").count(), 3, "{body}");
    assert!(body.contains("[\"1001000000\",\"{\\\"code\\\":404}\"]"), "{body}");
    let mut later = |words: &str, wait| match fake::send(&mut *pusher, &texts) {
        Outcome::Later { why, after } => {
            assert!(why.contains(words), "{why}");
            assert_eq!(after, wait);
        }
        other => panic!("{words}: {other:?}"),
    };
    later("rate limit", Some(Duration::from_secs(3)));
    later("gone", None);
    later("", None);
    later("", None);
    let Outcome::Some { done, refused, .. } = fake::send(&mut *pusher, &texts) else { panic!() };
    assert_eq!(done, [true, true, false]);
    assert!(refused[0].1.contains("too far behind"), "{refused:?}");
    let Outcome::Some { refused, .. } = fake::send(&mut *pusher, &texts) else { panic!() };
    assert_eq!(refused.len(), 3, "a push that is no push is refused whole");
    let outcome = fake::send(&mut *pusher, &texts);
    assert!(matches!(outcome, Outcome::Later { .. }), "no redirects: {outcome:?}");
}
