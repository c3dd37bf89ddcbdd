// Shows the notifications of the page in browsers where only a service worker can, and opens the session of one that is pressed.
// It has no other events: each request of the page goes to the gateway.

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data));
});

async function open(address) {
  const [page] = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  if (!page) return self.clients.openWindow(address);
  await page.focus();
  page.postMessage({ open: address });
}
