package gateways

import (
	"context"
	"fmt"
	"sync"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/iamcredentials/v1"
	"google.golang.org/api/option"
)

// Token is an access token of Google's.
type Token struct {
	Value     string
	ExpiresAt time.Time
}

// Times of tokens. A token is renewed at half of its life, so that gateways can publish for
// half an hour more while the API or IAM is unavailable. A revoked gateway can use its token
// for an hour at most, and its signed messages are refused before.
const (
	tokenLife    = time.Hour // IAM's longest, unless the organisation's policy allows more
	tokenRenewal = tokenLife / 2
	tokenTimeout = 5 * time.Second
	tokenRetry   = 10 * time.Second
)

// PublishingTokens makes access tokens of one service account, by the IAM Credentials
// API, and gives each to all gateways until half of its life is over.
type PublishingTokens struct {
	account string
	clock   func() time.Time
	options []option.ClientOption

	mutex   sync.Mutex
	service *iamcredentials.Service // nil before the first token
	token   Token
	retry   time.Time // after a failure, the earliest next attempt
	err     error     // of the last attempt
}

// NewPublishingTokens takes the account's e-mail address. The caller's own account needs
// the right to make its tokens. The client is made for the first token, so that an API
// without credentials serves everything else.
func NewPublishingTokens(account string, clock func() time.Time, options ...option.ClientOption) *PublishingTokens {
	return &PublishingTokens{account: account, clock: clock, options: options}
}

// Token returns a token to publish with. While IAM fails, it returns the last one as long as
// that is valid, and tries again every ten seconds.
func (p *PublishingTokens) Token(ctx context.Context) (Token, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	now := p.clock()
	if p.token.ExpiresAt.Sub(now) < tokenRenewal && !now.Before(p.retry) {
		made, err := p.generate(ctx)
		p.err, p.retry = err, time.Time{}
		if err != nil {
			p.retry = now.Add(tokenRetry)
		} else {
			p.token = made
		}
	}
	if p.token.ExpiresAt.After(now) {
		return p.token, nil
	}
	return Token{}, p.err
}

// generate makes a token. If the caller that waits for it goes away, the others that wait
// still get it.
func (p *PublishingTokens) generate(ctx context.Context) (Token, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenTimeout)
	defer cancel()
	if p.service == nil {
		// The client outlives the request.
		service, err := iamcredentials.NewService(context.WithoutCancel(ctx), p.options...)
		if err != nil {
			return Token{}, fmt.Errorf("IAM credentials client: %w", err)
		}
		p.service = service
	}
	made, err := p.service.Projects.ServiceAccounts.GenerateAccessToken("projects/-/serviceAccounts/"+p.account,
		&iamcredentials.GenerateAccessTokenRequest{
			Scope: []string{pubsub.ScopePubSub}, Lifetime: fmt.Sprintf("%.0fs", tokenLife.Seconds()),
		}).Context(ctx).Do()
	if err != nil {
		return Token{}, fmt.Errorf("access token of %s: %w", p.account, err)
	}
	expires, err := time.Parse(time.RFC3339, made.ExpireTime)
	if err != nil {
		return Token{}, fmt.Errorf("expiry of an access token of %s: %w", p.account, err)
	}
	return Token{Value: made.AccessToken, ExpiresAt: expires}, nil
}
