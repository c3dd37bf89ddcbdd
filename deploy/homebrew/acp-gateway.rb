# `scripts/release` replaces the words in at signs.
class AcpGateway < Formula
  desc "HTTP and SSE gateway that exposes ACP agents to web apps"
  homepage "@RELEASES@"
  version "@VERSION@"
  license "Apache-2.0"

  depends_on :linux

  on_intel do
    url "@RELEASES@/acp-gateway-@VERSION@-x86_64-unknown-linux-musl.tar.gz"
    sha256 "@SHA256_x86_64@"
  end
  on_arm do
    url "@RELEASES@/acp-gateway-@VERSION@-aarch64-unknown-linux-musl.tar.gz"
    sha256 "@SHA256_aarch64@"
  end

  def install
    bin.install "bin/acp-gateway"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/acp-gateway"
    fish_completion.install "share/fish/vendor_completions.d/acp-gateway.fish"
    zsh_completion.install "share/zsh/site-functions/_acp-gateway"
  end

  service do
    run [opt_bin/"acp-gateway", "serve"]
    keep_alive crashed: true
    log_path var/"log/acp-gateway.log"
    error_log_path var/"log/acp-gateway.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/acp-gateway --version")
  end
end
