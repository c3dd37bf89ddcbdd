# For scripts that start a gateway with the demo agent.
#
# The sourcing script sets BINARY (an absolute path) and PYTHON. `start_gateway` sets `scratch`, `url` and `key`;
# the gateway stops when the script ends.

scratch=$(mktemp -d)
gateway=

# Stops the gateway and waits for it. The process id is valid until the wait.
stop_gateway() {
  if [[ -n $gateway ]]; then
    kill -TERM "$gateway" 2>/dev/null || true
    for ((tries = 0; tries < 150; tries++)); do
      kill -0 "$gateway" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$gateway" 2>/dev/null || true
    wait "$gateway" 2>/dev/null || true
  fi
  rm -rf "$scratch"
}
trap stop_gateway EXIT

free_port() {
  "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start_gateway() {
  local port key_file=$scratch/admin.key
  port=$(free_port)
  url=http://127.0.0.1:$port
  # Large enough for all sessions of a run. Otherwise requests would wait for processes most of the time.
  printf '[agents.demo]\nbuiltin = "demo"\npool = { max_size = 256, min_idle = 2, idle_timeout = "2s" }\n' >"$scratch/config.toml"
  # Requests for the registry load no file of the internet.
  printf '[registry]\nsource = "%s"\n' "$scratch/registry.json" >>"$scratch/config.toml"
  printf '{"version": "1.0.0", "agents": []}\n' >"$scratch/registry.json"
  (umask 077; "$PYTHON" -c 'import secrets; print(secrets.token_hex(32))' >"$key_file")
  key=$(<"$key_file")
  # The default limits of a key are for people. Here one key sends all requests.
  env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$scratch" \
    ACP_GATEWAY_ADMIN_KEY_FILE="$key_file" \
    ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS=true \
    ACP_GATEWAY__LIMITS__PER_KEY__MAX_REQUESTS_PER_MINUTE=1000000 \
    ACP_GATEWAY__LIMITS__PER_KEY__MAX_PROMPTS_PER_MINUTE=1000000 \
    ACP_GATEWAY__LIMITS__PER_KEY__MAX_LIVE_SESSIONS=10000 \
    ACP_GATEWAY__LIMITS__PER_KEY__MAX_STREAMS=10000 \
    "$BINARY" serve --config "$scratch/config.toml" --data "$scratch/data" --listen "127.0.0.1:$port" >"$scratch/stdout" 2>"$scratch/stderr" &
  gateway=$!
  for ((tries = 0; tries < 300; tries++)); do
    if ! kill -0 "$gateway" 2>/dev/null; then break; fi
    if curl --silent --fail --max-time 2 --output /dev/null "$url/readyz"; then return 0; fi
    sleep 0.1
  done
  printf 'the gateway did not become ready\n' >&2
  gateway_log
  return 1
}

gateway_log() {
  printf '\nthe last lines of the log of the gateway:\n' >&2
  tail -n 40 "$scratch/stderr" >&2
}
