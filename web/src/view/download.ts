// Saves a text as a file.

export function download(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads the text after this function.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
