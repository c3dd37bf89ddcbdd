// The root: the chat if the page has a key, otherwise the form for the key.

import { useCallback, useEffect, useMemo, useState } from "react";
import { Client } from "../api/client";
import { forgetKey, isKept, loadKey, saveKey, takeKeyFromAddress } from "../api/key";
import { KeyGate } from "./KeyGate";
import { Shell } from "./Shell";

export function App({ firstKey }: { firstKey: string | null }) {
  const [key, setKey] = useState(firstKey);
  const [refused, setRefused] = useState(false);

  // A fresh link that is pasted into this tab only changes the part behind the `#`, so the page is not loaded again.
  useEffect(() => {
    const take = () => {
      const given = takeKeyFromAddress();
      if (!given) return;
      saveKey(given, isKept());
      setRefused(false);
      setKey(given);
    };
    addEventListener("hashchange", take);
    return () => removeEventListener("hashchange", take);
  }, []);

  const forget = useCallback((wasRefused: boolean) => {
    forgetKey();
    setRefused(wasRefused);
    setKey(null);
  }, []);

  const client = useMemo(() => (key ? new Client(key, () => forget(true)) : null), [key, forget]);

  if (!client) {
    return (
      <KeyGate
        refused={refused}
        onKey={(given, keep) => {
          saveKey(given, keep);
          setRefused(false);
          setKey(given);
        }}
      />
    );
  }
  return <Shell key={key} client={client} onForget={() => forget(false)} />;
}

export function firstKey(): string | null {
  const given = takeKeyFromAddress();
  if (given) saveKey(given, isKept());
  return given ?? loadKey();
}
