//! Figures out of the JSON that status pages answer with.

/// What stands behind `"name":`, to its end.
#[track_caller]
pub fn part<'a>(json: &'a str, name: &str) -> &'a str {
    let key = format!("\"{name}\":");
    let at = json.find(&key).unwrap_or_else(|| panic!("{name} in {json}")) + key.len();
    let (mut depth, mut quoted) = (0, false);
    for (n, c) in json[at..].char_indices() {
        match c {
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => depth += 1,
            '}' | ']' | ',' if !quoted && depth == 0 => return &json[at..at + n],
            '}' | ']' if !quoted => depth -= 1,
            _ => {}
        }
    }
    panic!("{name} in {json}");
}

#[track_caller]
pub fn number(json: &str, name: &str) -> u64 {
    let text = part(json, name);
    text.parse().unwrap_or_else(|_| panic!("{name}: {text}"))
}
