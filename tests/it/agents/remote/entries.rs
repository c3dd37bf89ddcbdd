//! Entries of remote agents that `check` accepts and rejects.

use crate::attacks::surfaces::check;

const ENTRY: &str =
    "[agents.far]\nurl = \"wss://agent.example/acp\"\nremote_folders = [\"/srv\"]\n";

/// The output of `check`, and whether it succeeded.
fn checked(config: &str) -> (bool, String) {
    let output = check(config);
    let text = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    (output.status.success(), text)
}

#[test]
fn entry_of_a_remote_agent_is_valid_and_shown_without_its_token() {
    let (valid, text) = checked(&format!(
        "{ENTRY}token = {{ from_env = \"HOME\" }}\nfiles = \"client\"\n"
    ));
    assert!(
        valid && text.contains("url = \"wss://agent.example/acp\""),
        "{text}"
    );
    assert!(text.contains("token = { from_env = \"HOME\" }"), "{text}");
}

#[test]
fn keys_of_children_and_files_of_the_gateway_are_rejected() {
    for (more, reason) in [
        (
            "command = \"sh\"",
            "url cannot be combined with builtin, command or args",
        ),
        ("env = { A = \"b\" }", "agents.far.env"),
        ("home = \"user\"", "agents.far.home"),
        ("telemetry = true", "agents.far.telemetry"),
        ("isolation = \"private\"", "agents.far.isolation"),
        ("folders = [\"/srv\"]", "agents.far.folders"),
        ("max_processes = 9", "agents.far.max_processes"),
        ("files = \"gateway\"", "must be \"off\" or \"client\""),
        ("terminals = \"gateway\"", "must be \"off\" or \"client\""),
        ("headers = { Host = \"x\" }", "agents.far.headers"),
        (
            "token = \"a\"\nheaders = { authorization = \"b\" }",
            "both token and the header",
        ),
        (
            "ca_file = \"/etc/hostname-that-is-missing\"",
            "agents.far.ca_file",
        ),
        ("transport = \"x\"", "agents.far.transport"),
    ] {
        let (valid, text) = checked(&format!("{ENTRY}{more}\n"));
        assert!(!valid && text.contains(reason), "{more}: {text}");
    }
}

#[test]
fn url_without_tls_or_with_credentials_is_rejected() {
    for (url, reason) in [
        ("ws://agent.example/acp", "insecure_http = true"),
        ("http://agent.example/acp", "insecure_http = true"),
        ("https://agent.example/acp?token=a", "without a query"),
        (
            "wss://key@agent.example/acp",
            "must not contain credentials",
        ),
        ("wss://agent.example/acp?token=a", "without a query"),
        ("wss://agent.example/acp#a", "without a query"),
        (
            "ftp://agent.example/acp",
            "not a URL such as https://HOST/acp",
        ),
        ("/acp", "not a URL such as https://HOST/acp"),
    ] {
        let (valid, text) = checked(&ENTRY.replace("wss://agent.example/acp", url));
        assert!(!valid && text.contains(reason), "{url}: {text}");
        assert!(!text.contains("token=a"), "{text}");
    }
    for valid in [
        "ws://127.0.0.1:8080/acp",
        "ws://localhost/acp",
        "wss://[::2]/acp/fake",
        "https://agent.example/acp/fake",
        "http://127.0.0.1:8080/acp",
    ] {
        assert!(
            checked(&ENTRY.replace("wss://agent.example/acp", valid)).0,
            "{valid}"
        );
    }
    for scheme in ["ws", "http"] {
        let without_tls = ENTRY.replace("wss", scheme) + "insecure_http = true\n";
        assert!(checked(&without_tls).0, "{scheme}");
    }
    assert!(
        checked("[agents.far]\nurl = \"wss://a/acp\"\n")
            .1
            .contains("needs remote_folders")
    );
}
