/** What is asked before the page of a press of Back is shown. */
export const onBack = new Set<(event: Event) => void>();

// Listeners of the window are called in their order: before the router's.
addEventListener("popstate", (event) => onBack.forEach((ask) => ask(event)));
