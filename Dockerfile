# syntax=docker/dockerfile:1
# Two images from one file:
#
#   docker build --target gateway -t acp-gateway .             the gateway and nothing else
#   docker build --target gateway-node -t acp-gateway:node .   with Node, git and ripgrep, for agents that npx runs

# The base images. Their tags can change, so a release build passes digests:
#   --build-arg RUST_IMAGE=rust@sha256:... --build-arg NODE_IMAGE=node@sha256:... --build-arg DEBIAN_IMAGE=debian@sha256:...
ARG NODE_IMAGE=node:22-bookworm-slim
ARG RUST_IMAGE=rust:1.95.0-slim-bookworm
ARG DEBIAN_IMAGE=debian:bookworm-slim

# The page, built from source, so that the image does not depend on the committed web/dist.
FROM ${NODE_IMAGE} AS web
WORKDIR /web
COPY web/package.json web/package-lock.json ./
COPY web/packages/client/package.json packages/client/
COPY web/packages/react/package.json packages/react/
RUN npm ci --no-fund --no-audit
COPY web ./
RUN npm run build

FROM ${RUST_IMAGE} AS rust
WORKDIR /src
COPY . .
COPY --from=web /web/dist web/dist
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked --bin acp-gateway \
    && install -D -m 0755 target/dist/acp-gateway /out/acp-gateway

# Agents run as the user of the gateway. A process can normally read the environment of other processes of its user, and the environment
# of tini and of the gateway contains the container's secrets. The kernel denies this for a program that the user can execute but not
# read. So root owns both programs, and their mode is 0711.
FROM ${DEBIAN_IMAGE} AS gateway
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates tini \
    && rm -rf /var/lib/apt/lists/* \
    && chmod 0711 /usr/bin/tini \
    && groupadd --gid 10001 gateway \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin gateway \
    && install -d -m 0700 -o 10001 -g 10001 /data \
    && install -d -m 0755 -o 10001 -g 10001 /workspaces
COPY --from=rust --chmod=0711 /out/acp-gateway /usr/local/bin/acp-gateway
LABEL org.opencontainers.image.title="acp-gateway" \
    org.opencontainers.image.description="An HTTP and SSE gateway that exposes ACP agents to web apps" \
    org.opencontainers.image.licenses="Apache-2.0"
# The address inside the container. The gateway rejects an address other than loopback unless the configuration names a proxy
# (server.trusted_proxies), or --insecure-http is set because the port is published on loopback only.
ENV ACP_GATEWAY_DATA=/data \
    ACP_GATEWAY_LISTEN=0.0.0.0:8080 \
    ACP_GATEWAY__WORKSPACES__ROOT=/workspaces \
    ACP_GATEWAY__TIMEOUTS__DRAIN_TIMEOUT=30s
USER 10001:10001
WORKDIR /data
VOLUME ["/data", "/workspaces"]
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 CMD ["acp-gateway", "healthcheck"]
# tini is process 1 and reaps orphaned processes; -s is for containers in which it is not process 1.
ENTRYPOINT ["tini", "-s", "--", "acp-gateway"]

FROM ${NODE_IMAGE} AS gateway-node
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git ripgrep tini \
    && rm -rf /var/lib/apt/lists/* \
    && chmod 0711 /usr/bin/tini \
    && groupadd --gid 10001 gateway \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin gateway \
    && install -d -m 0700 -o 10001 -g 10001 /data \
    && install -d -m 0755 -o 10001 -g 10001 /workspaces
COPY --from=rust --chmod=0711 /out/acp-gateway /usr/local/bin/acp-gateway
LABEL org.opencontainers.image.title="acp-gateway" \
    org.opencontainers.image.description="An HTTP and SSE gateway that exposes ACP agents to web apps, with Node for npx agents" \
    org.opencontainers.image.licenses="Apache-2.0"
ENV ACP_GATEWAY_DATA=/data \
    ACP_GATEWAY_LISTEN=0.0.0.0:8080 \
    ACP_GATEWAY__WORKSPACES__ROOT=/workspaces \
    ACP_GATEWAY__TIMEOUTS__DRAIN_TIMEOUT=30s
USER 10001:10001
WORKDIR /data
VOLUME ["/data", "/workspaces"]
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 CMD ["acp-gateway", "healthcheck"]
ENTRYPOINT ["tini", "-s", "--", "acp-gateway"]
