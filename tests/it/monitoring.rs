//! A real Prometheus scrapes a gateway in use, and evaluates each panel of the dashboard and each alert. The part `monitoring`
//! of `scripts/test` installs it.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::key_life::key;
use crate::metrics::{scenario, setup};
use crate::support::gateway::command;
use crate::support::places::project;
use crate::support::wait::eventually;

const PATIENCE: Duration = Duration::from_secs(30);

struct Prometheus {
    child: Child,
    url: String,
    http: reqwest::Client,
    _folder: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    async fn start(target: &str, key: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("key"), key).expect("the folder is ours");
        let config = format!(
            "global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: [\"{}\"]\n\
             scrape_configs:\n\
             - job_name: acp-gateway\n  authorization: {{ credentials_file: \"{}\" }}\n  \
             static_configs: [{{ targets: [{target:?}] }}]\n",
            project().join("deploy/prometheus/alerts.yaml").display(),
            path("key").display(),
        );
        std::fs::write(path("prometheus.yaml"), config).expect("the folder is ours");
        let program = project().join("tests/monitoring/.prometheus/usr/bin/prometheus");
        let log = File::create(path("log")).expect("the folder is ours");
        let child = command(program.to_str().expect("UTF-8"))
            .arg(format!(
                "--config.file={}",
                path("prometheus.yaml").display()
            ))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("scripts/test monitoring installs Prometheus");
        let address = eventually("Prometheus listens", PATIENCE, || async {
            address_of(&path("log"))
        })
        .await;
        Self {
            child,
            url: format!("http://{address}"),
            http: reqwest::Client::builder()
                .no_proxy()
                .build()
                .expect("a client"),
            _folder: folder,
        }
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Value {
        let url = reqwest::Url::parse_with_params(&format!("{}{path}", self.url), query);
        let answer = self.http.get(url.expect("a URL")).send().await;
        let answer: Value = answer.expect("an answer").json().await.expect("JSON");
        assert_eq!(answer["status"], "success", "{query:?}: {answer}");
        answer["data"].clone()
    }

    async fn has_result(&self, query: &str) -> bool {
        let data = self.get("/api/v1/query", &[("query", query)]).await;
        !data["result"].as_array().expect("a list").is_empty()
    }
}

fn address_of(log: &Path) -> Option<String> {
    let log = std::fs::read_to_string(log).expect("the folder is ours");
    let line = log.lines().find(|line| line.contains("Listening on"))?;
    let (_, address) = line.split_once("address=")?;
    Some(address.split_whitespace().next()?.to_owned())
}

/// The queries of the dashboard with the title of their panel.
fn queries() -> Vec<(String, String)> {
    let file = project().join("deploy/grafana/acp-gateway.json");
    let text = std::fs::read_to_string(file).expect("the file is committed");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("a list") {
        let targets = panel["targets"].as_array().into_iter().flatten();
        for target in targets {
            let query = target["expr"].as_str().expect("a query");
            let query = query
                .replace("$instance", ".*")
                .replace("$__rate_interval", "1m");
            queries.push((panel["title"].as_str().expect("a title").to_owned(), query));
        }
    }
    queries
}

#[tokio::test]
async fn each_panel_shows_a_gateway_in_use_and_each_alert_is_evaluated() {
    let gateway = setup().start();
    let key = key(&gateway, "prometheus", "metrics").await;
    let target = gateway.url.trim_start_matches("http://");
    let prometheus = Prometheus::start(target, &key).await;
    scenario(&gateway).await;
    let queries = queries();
    assert!(queries.len() > 30, "{}", queries.len());
    for (title, query) in &queries {
        // A rate needs two scrapes.
        let what = format!("{title} shows something: {query}");
        eventually(&what, PATIENCE, || async {
            prometheus.has_result(query).await.then_some(())
        })
        .await;
    }
    let rules = eventually("the alerts are evaluated", PATIENCE, || async {
        let data = prometheus.get("/api/v1/rules", &[]).await;
        let rules = data["groups"][0]["rules"].as_array().cloned()?;
        rules
            .iter()
            .all(|rule| rule["health"] != "unknown")
            .then_some(rules)
    })
    .await;
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    // A gateway that answers scrapes is not down.
    let state = |name: &str| {
        let rule = rules.iter().find(|rule| rule["name"] == name);
        rule.expect("it is loaded")["state"].clone()
    };
    assert_eq!(state("GatewayDown"), "inactive");
    assert!(prometheus.has_result("up{job=\"acp-gateway\"} == 1").await);
}
