//! The same JSON as an odd agent spells it, with members that no schema knows in each object.

/// The members added to each object: numbers beyond a float, half of a surrogate pair, escapes, unordered and duplicate keys.
const UNKNOWN: &str = r#""_x.later" :[ 1.10,1e400,-0 ,123456789012345678901234567890,"\ud83d","\u0041\/é😀",{"z":1 ,"a":{"b":null},"z":2}]"#;

/// `json` with unknown members and odd white space. Its strings and numbers stay as they are.
pub(super) fn odd(json: &str) -> String {
    odd_to(json, usize::MAX)
}

/// The same with unknown members only in objects that lie that deep, and less: deeper ones are a client's own, such as
/// a JSON Schema.
pub(super) fn odd_to(json: &str, depth: usize) -> String {
    let mut out = String::new();
    let mut in_string = false;
    let mut escaped = false;
    // Whether the object has a member yet.
    let mut members: Vec<bool> = Vec::new();
    for character in json.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' | '[' => members.push(false),
            '}' if members.len() > depth => drop(members.pop()),
            '}' => {
                out.push_str(if members.pop() == Some(true) {
                    " ,"
                } else {
                    ""
                });
                out.push_str(UNKNOWN);
            }
            ']' => drop(members.pop()),
            _ => {}
        }
        if !matches!(character, '{' | '[')
            && let Some(open) = members.last_mut()
        {
            *open = true;
        }
        out.push(character);
        match character {
            ':' if !in_string => out.push(' '),
            ',' if !in_string => out.push('\t'),
            _ => {}
        }
    }
    out
}

#[test]
fn each_object_gets_unknown_members() {
    assert_eq!(
        odd_to(r#"{"a":{"b":{}}}"#, 2).matches("_x.later").count(),
        2
    );
    for (plain, objects) in [("{}", 1), (r#"{"a":{"b":"}"},"c":[{},{"d":"\""}]}"#, 4)] {
        let odd = odd(plain);
        assert_eq!(odd.matches("_x.later").count(), objects, "{odd}");
        let parsed: Box<serde_json::value::RawValue> =
            serde_json::from_str(&odd).expect("it is JSON");
        assert_eq!(parsed.get(), odd);
    }
}
