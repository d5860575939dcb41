package watch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/email/smtp"
	"github.com/wneessen/go-mail"
)

// parseMail reads an smtp URL by the notification library, and addresses a message as it says.
func parseMail(configured string) (*smtp.Config, *mail.Msg, error) {
	var service smtp.Service
	address, err := url.Parse(configured)
	if err == nil {
		err = service.Initialize(address, nil)
	}
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // the caller redacts it
	}
	c, message := service.Config, mail.NewMsg(mail.WithNoDefaultUserAgent())
	c.FixEmailTags()
	return c, message, errors.Join(message.FromFormat(c.FromName, c.FromAddress), message.To(c.ToAddresses...))
}

// sendMail sends a message to the mail server of an smtp URL. The notification library's own SMTP
// client has no deadline: once a server that hung recovers, the message arrives once for each attempt.
func sendMail(ctx context.Context, configured, title, text string, timeout time.Duration) error {
	c, message, err := parseMail(configured)
	if err != nil {
		return err
	}
	options := []mail.Option{
		mail.WithPort(int(c.Port)), mail.WithTimeout(timeout), mail.WithUsername(c.Username), mail.WithPassword(c.Password),
		mail.WithTLSConfig(&tls.Config{ServerName: c.Host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.SkipTLSVerify}), //nolint:gosec // the URL says so
	}
	switch {
	case c.Encryption == smtp.EncImplicitTLS || c.Encryption == smtp.EncAuto && c.Port == smtp.ImplicitTLSPort:
		options = append(options, mail.WithSSL())
	case !c.UseStartTLS:
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	case !c.RequireStartTLS:
		options = append(options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	}
	if c.ClientHost != "auto" {
		options = append(options, mail.WithHELO(c.ClientHost))
	}
	switch c.Auth {
	case smtp.AuthTypes.Plain:
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthPlain))
	case smtp.AuthTypes.CRAMMD5:
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthCramMD5))
	case smtp.AuthTypes.OAuth2:
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthXOAUTH2))
	default:
	}
	message.Subject(title)
	message.SetBodyString(mail.TypeTextPlain, text)
	client, err := mail.NewClient(c.Host, options...)
	if err != nil {
		return fmt.Errorf("mail server %s: %w", c.Host, err)
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err == nil {
		err = client.SendWithSMTPClient(session, message)
		_ = client.CloseWithSMTPClient(session) // it has the message, or has refused it
	}
	if err != nil {
		return fmt.Errorf("mail server %s: %w", c.Host, err)
	}
	return nil
}
