# Two images from one file, built with BuildKit (`DOCKER_BUILDKIT=1` for engines before 23):
#
#   docker build --target gateway -t acp-gateway .             a static program on an empty base
#   docker build --target gateway-node -t acp-gateway:node .   with Node, git and ripgrep, for agents that npx runs
#
# Both compile the program. A release does not compile it again: its context is a folder that contains the static program,
#   docker build --target gateway -t acp-gateway --build-arg BINARY=prebuilt -f Dockerfile FOLDER
#
# The secret `ca` replaces the certificates during the compilation, for networks with an own certificate authority:
#   --secret id=ca,src=/etc/ssl/certs/ca-certificates.crt

# The base images. Their tags can change, so a reproducible build passes digests:
#   --build-arg RUST_IMAGE=rust@sha256:... --build-arg NODE_IMAGE=node@sha256:... --build-arg DEBIAN_IMAGE=debian@sha256:...
ARG NODE_IMAGE=node:22-bookworm-slim
ARG RUST_IMAGE=rust:1.95.0-slim-bookworm
ARG DEBIAN_IMAGE=debian:bookworm-slim
# `source` or `prebuilt`.
ARG BINARY=source

FROM ${RUST_IMAGE} AS source
RUN apt-get update && apt-get install -y --no-install-recommends make musl-tools
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    target="$(uname -m)-unknown-linux-musl" \
    && rustup target add "$target" \
    && cargo build --profile dist --locked --target "$target" --bin acp-gateway \
    && cp "target/$target/dist/acp-gateway" /acp-gateway

FROM scratch AS prebuilt
COPY acp-gateway /acp-gateway

FROM ${BINARY} AS binary

# The files of the image `gateway`, which has no shell to create them.
#
# Agents run as the user of the gateway. A process can normally read the environment of other processes of its user, and the environment
# of tini and of the gateway contains the container's secrets. The kernel denies this for a program that the user can execute but not
# read. So root owns both programs, and their mode is 0711.
FROM ${DEBIAN_IMAGE} AS files
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates tini
COPY --from=binary /acp-gateway /acp-gateway
RUN install -D -m 0711 /usr/bin/tini-static /files/usr/local/bin/tini \
    && install -m 0711 /acp-gateway /files/usr/local/bin/acp-gateway \
    && install -D -m 0644 /etc/ssl/certs/ca-certificates.crt /files/etc/ssl/certs/ca-certificates.crt \
    && echo 'root:x:0:0:root:/:/sbin/nologin' > /files/etc/passwd \
    && echo 'gateway:x:10001:10001::/data:/sbin/nologin' >> /files/etc/passwd \
    && printf 'root:x:0:\ngateway:x:10001:\n' > /files/etc/group \
    && install -d -m 1777 /files/tmp \
    && install -d -m 0700 -o 10001 -g 10001 /files/data \
    && install -d -m 0755 -o 10001 -g 10001 /files/workspaces

FROM scratch AS gateway
COPY --from=files /files /
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
    && apt-get install -y --no-install-recommends ca-certificates git ripgrep \
    && rm -rf /var/lib/apt/lists/* /var/log/* \
    && groupadd --gid 10001 gateway \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin gateway \
    && install -d -m 0700 -o 10001 -g 10001 /data \
    && install -d -m 0755 -o 10001 -g 10001 /workspaces
COPY --from=files /files/usr/local/bin /usr/local/bin
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
