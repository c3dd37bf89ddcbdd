//! Attacks by paths over real HTTP, as bytes that no well-meaning client would send.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::time::Duration;

use reqwest::Method;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::Ground;
use crate::support::gateway::KEY;

const SECRET: &str = "a secret outside";

/// A session, and beside its folder another one with a secret.
async fn guarded() -> Ground {
    let ground = Ground::fake().await;
    ground.make("inside", "inside");
    for folder in [
        format!("{}-secret", ground.cwd),
        format!("{}/../other", ground.cwd),
    ] {
        std::fs::create_dir(&folder).expect("the folder is ours");
        std::fs::write(format!("{folder}/file"), SECRET).expect("the folder is ours");
    }
    ground
}

/// Sends a request with this exact target. Returns the status and the whole response.
fn raw(ground: &Ground, method: &str, path: &str) -> (u16, String) {
    let address = ground.gateway.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a timeout");
    let target = ground.url(path);
    let body = if method == "PUT" {
        "content-length: 3\r\n\r\nbad"
    } else {
        "\r\n"
    };
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\n"
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .expect("it is open");
    let mut answer = Vec::new();
    // A reset after the answer is an end too.
    drop(stream.read_to_end(&mut answer));
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    (
        status.unwrap_or_else(|| panic!("no answer to {path:?}: {answer:?}")),
        answer,
    )
}

/// By every method; none of them reads, writes or deletes anything outside.
fn refused(ground: &Ground, path: &str, statuses: &[u16]) {
    for method in ["GET", "PUT", "DELETE", "HEAD"] {
        let (status, answer) = raw(ground, method, path);
        assert!(statuses.contains(&status), "{method} {path}: {answer}");
        assert!(!answer.contains(SECRET), "{method} {path}: {answer}");
        let kept =
            |folder: &str| std::fs::read_to_string(format!("{folder}/file")).expect("it is there");
        assert_eq!(
            kept(&format!("{}-secret", ground.cwd)),
            SECRET,
            "{method} {path}"
        );
        assert_eq!(
            kept(&format!("{}/../other", ground.cwd)),
            SECRET,
            "{method} {path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dot_dot_in_every_spelling() {
    let ground = guarded().await;
    assert_eq!(raw(&ground, "GET", "/inside").0, 200);
    assert_eq!(raw(&ground, "GET", "/.//./inside").0, 200);
    assert_eq!(raw(&ground, "GET", "/%69nside").0, 200);
    for path in [
        "/../other/file",
        "/%2e%2e/other/file",
        "/%2E./other/file",
        "/..%2fother%2ffile",
        "/x/../../other/file",
        "/%2e%2e%2fother%2ffile",
        "/inside/..",
        "/..",
    ] {
        refused(&ground, path, &[422]);
    }
    // Paths are decoded exactly once, and only `/` is a separator.
    for path in [
        "/%252e%252e/other/file",
        "/%252e%252e%252fother",
        "/..%5cother%5cfile",
    ] {
        let (status, answer) = raw(&ground, "GET", path);
        assert_eq!(status, 404, "{path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn absolute_paths_and_sibling_prefixes() {
    let ground = guarded().await;
    for path in [
        "//etc/passwd",
        "/%2Fetc/passwd",
        "///etc/passwd",
        "/%2f%2fetc%2fpasswd",
        "/%2F",
        "/%2Fproc/self/environ",
    ] {
        refused(&ground, path, &[403]);
    }
    refused(
        &ground,
        &format!("/%2F{}-secret/file", &ground.cwd[1..]),
        &[403],
    );
    refused(&ground, &format!("/{}/../other/file", ground.cwd), &[422]);
    assert_eq!(
        raw(&ground, "GET", &format!("/{}/inside", ground.cwd)).0,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nul_and_bytes_that_are_no_text() {
    let ground = guarded().await;
    for path in ["/%00", "/inside%00", "/inside%00.txt"] {
        refused(&ground, path, &[422]);
    }
    // Overlong spellings of a dot and a slash, half a character, a surrogate: no UTF-8, so no path of ours.
    for path in [
        "/%c0%ae%c0%ae/other/file",
        "/..%c0%af..%c0%afother",
        "/%ff",
        "/%e2%82",
        "/%ed%a0%80",
    ] {
        refused(&ground, path, &[404]);
    }
    refused(&ground, &format!("/{}", "n".repeat(300)), &[422]);
    refused(&ground, "/", &[404]);
    refused(&ground, "", &[200, 405]);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_out_and_loops() {
    let ground = guarded().await;
    let link = |to: &str, at: &str| symlink(to, format!("{}/{at}", ground.cwd)).expect("a link");
    link("../other", "out");
    link("/etc", "absolute");
    link("loop", "loop");
    link("inside", "in");
    for path in ["/out/file", "/absolute/passwd", "/out/new"] {
        refused(&ground, path, &[403]);
    }
    assert_eq!(raw(&ground, "GET", "/in").0, 200);
    assert_eq!(raw(&ground, "GET", "/loop").0, 404);
    assert_eq!(raw(&ground, "PUT", "/loop").0, 422);
    assert_eq!(raw(&ground, "GET", "?path=out").0, 403);
    assert_eq!(raw(&ground, "GET", "?path=loop").0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifo_is_rejected_without_blocking() {
    let ground = guarded().await;
    mknodat(
        CWD,
        format!("{}/pipe", ground.cwd),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .expect("a FIFO");
    let began = std::time::Instant::now();
    assert_eq!(raw(&ground, "GET", "/pipe").0, 422);
    assert_eq!(raw(&ground, "PUT", "/pipe").0, 422);
    assert!(began.elapsed() < Duration::from_secs(10));
    let listed = ground.gateway.get(&ground.url("")).await;
    assert_eq!(listed["files"][1]["type"], "other", "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_folder_is_swapped_for_a_link() {
    let ground = guarded().await;
    std::fs::rename(&ground.cwd, format!("{}-moved", ground.cwd)).expect("it is ours");
    ground
        .gateway
        .call(Method::GET, &ground.url("/inside"))
        .await
        .problem(404, "not_found");
    symlink("other", &ground.cwd).expect("a link");
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let answer = ground.gateway.call(method, &ground.url("/file")).await;
        assert!(matches!(answer.status.as_u16(), 403 | 404), "{answer:?}");
    }
    let other = format!("{}/file", ground.cwd);
    assert_eq!(std::fs::read_to_string(other).expect("it is there"), SECRET);
}
