// The root: the chat if the page has a key, otherwise the form for the key.

import { useCallback, useEffect, useMemo, useState } from "react";
import { GatewayClient } from "@acp-gateway/client";
import { useSharedConnection } from "@acp-gateway/react";
import { forgetKey, isKept, loadKey, saveKey, takeKeyFromAddress } from "../model/key";
import { KeyGate } from "./KeyGate";
import { ReplaceKey } from "./ReplaceKey";
import { Shell } from "./Shell";
import { WhenOpened } from "./WhenOpened";

export function App({ keys }: { keys: Keys }) {
  const [key, setKey] = useState(keys.used);
  const [offered, setOffered] = useState(keys.offered);
  const [refused, setRefused] = useState(false);
  const [showsKeys, setShowsKeys] = useState(false);

  const use = useCallback((given: string, keep: boolean) => {
    saveKey(given, keep);
    setOffered(null);
    setRefused(false);
    setKey(given);
  }, []);

  // A fresh link that is pasted into this tab only changes the part behind the `#`, so the page is not loaded again.
  useEffect(() => {
    const take = () => {
      const given = takeKeyFromAddress();
      if (!given) return;
      const stored = loadKey();
      if (stored && stored !== given) setOffered(given);
      else use(given, isKept());
    };
    addEventListener("hashchange", take);
    return () => removeEventListener("hashchange", take);
  }, [use]);

  const forget = useCallback((refusedKey: string | null) => {
    forgetKey(refusedKey);
    setRefused(refusedKey !== null);
    setKey(loadKey());
  }, []);

  const client = useMemo(() => (key ? new GatewayClient({ key, onUnauthorized: () => forget(key) }) : null), [key, forget]);
  const shared = useSharedConnection(client);

  return (
    <>
      {offered && <ReplaceKey onReplace={() => use(offered, isKept())} onKeep={() => setOffered(null)} />}
      {!client && <KeyGate refused={refused} onKey={use} />}
      {client && shared && <Shell key={key} client={client} hub={shared.connection} onKeys={() => setShowsKeys(true)} onForget={() => forget(null)} />}
      {/* Outside of the shell, which another key replaces. */}
      {showsKeys && <WhenOpened>{({ KeysDialog }) => <KeysDialog client={client} onReplace={use} onForget={() => forget(null)} onClose={() => setShowsKeys(false)} />}</WhenOpened>}
    </>
  );
}

interface Keys {
  used: string | null;
  /** The key of a link, while another key is stored. */
  offered: string | null;
}

export function firstKeys(): Keys {
  const [given, stored] = [takeKeyFromAddress(), loadKey()];
  if (given && stored && stored !== given) return { used: stored, offered: given };
  if (given) saveKey(given, isKept());
  return { used: given ?? stored, offered: null };
}
